"""Time as jobs see it: how long they run, and when they are tried again."""
