"""Containers as processes of this machine: starting, limiting, probing, logging."""
