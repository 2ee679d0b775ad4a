"""Nodes: the one that this machine is, and fake ones."""
