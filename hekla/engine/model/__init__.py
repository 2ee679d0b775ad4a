"""The cluster as the engine knows it: tables of nodes, tasks, queues, devices and volumes.  Knows
no session."""
