"""The kinds of Kubernetes itself, one module an API group or a part of it."""
