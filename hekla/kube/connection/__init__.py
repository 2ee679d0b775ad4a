"""How to reach the API server, and as whom."""
