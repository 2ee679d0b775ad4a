"""When waiting jobs will start, by what is known after a cycle."""
