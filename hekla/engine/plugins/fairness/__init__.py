"""Plugins that decide whose turn it is, and at whose expense."""
