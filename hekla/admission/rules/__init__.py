"""The rules of admission, one module for each kind: pure functions on objects."""
