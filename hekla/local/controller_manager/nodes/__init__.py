"""The health of nodes, and pods that have to leave them."""
