"""Evictions that were decided and have not come to their end: notices, and what was evicted for what."""
