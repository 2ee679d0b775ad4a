"""What a plugin is, and the session in which the answers of all plugins combine."""
