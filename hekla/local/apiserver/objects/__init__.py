"""What the API server knows about objects: pure functions on JSON trees, with no I/O and no clock."""
