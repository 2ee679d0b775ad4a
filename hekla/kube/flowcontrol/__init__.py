"""When a client sends its requests: how many at once, how often, how soon again."""
