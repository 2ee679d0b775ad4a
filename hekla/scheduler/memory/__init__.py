"""What outlives the scheduler: what was used, and what jobs took."""
