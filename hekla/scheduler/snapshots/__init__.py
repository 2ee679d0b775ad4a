"""What the scheduler knows, for those who may ask: the snapshot, and the server that hands it out."""
