"""Patches, merges, and who owns which fields."""
