"""Queues: what each holds, deserves and is guaranteed, by itself and as a tree."""
