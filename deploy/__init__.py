"""What Hekla is installed with on a cluster that one has; `python -m deploy` writes the generated
part of it."""
