"""Custom kinds: structural schemas and their rules."""
