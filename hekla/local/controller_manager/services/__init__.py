"""Endpoints and endpoint slices."""
