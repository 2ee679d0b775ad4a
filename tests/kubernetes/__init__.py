"""Kubernetes itself as the judge: a real API server built from source, and what is compared with
it."""
