"""Plugins that decide where a pod may run and where it runs best."""
