"""A local cluster on this machine: its directory, its certificates, the processes and who keeps
them running."""
