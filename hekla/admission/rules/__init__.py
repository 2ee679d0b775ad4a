"""The rules of admission, one module a kind: pure functions on objects."""
