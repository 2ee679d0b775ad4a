"""APIs that other servers answer: an APIService with a Service behind it."""
