"""The plugins, one a module: each is a function from a session and its arguments to evictions."""
