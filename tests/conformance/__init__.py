"""Scheduling cases as data: what goes in and what must come out, run against the engine and the
admission rules."""
