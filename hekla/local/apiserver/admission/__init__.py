"""Admission: built-in plugins, policies and webhooks."""
