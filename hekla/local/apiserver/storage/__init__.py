"""The state in memory, and the log and database under it."""
