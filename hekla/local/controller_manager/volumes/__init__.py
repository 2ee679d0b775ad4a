"""Volumes, claims on them, and where their storage comes from."""
