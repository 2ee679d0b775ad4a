"""Start estimates of the daemon: made while no cycle runs, told to users, compared with what came."""
