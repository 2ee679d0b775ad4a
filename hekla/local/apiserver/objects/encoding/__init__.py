"""Bodies to trees: JSON, YAML and protobuf."""
