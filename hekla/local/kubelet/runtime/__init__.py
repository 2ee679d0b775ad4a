"""Containers as processes of this machine: starting, limits, probes, logs."""
