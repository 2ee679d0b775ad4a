"""A local cluster on this machine: its directory, its certificates, its processes and their
supervisor."""
