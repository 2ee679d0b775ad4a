"""Two scheduler plugins for Hekla, to copy and change."""
