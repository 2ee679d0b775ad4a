"""Shards: which nodes each of several schedulers should use."""
