"""Patches, server-side apply, and the ownership of fields."""
