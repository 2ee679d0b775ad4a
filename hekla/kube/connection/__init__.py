"""Where the API server is, and how a client says who it is."""
