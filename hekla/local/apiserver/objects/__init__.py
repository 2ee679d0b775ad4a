"""What the API server knows about objects: pure functions on JSON trees, without I/O and without a
clock."""
