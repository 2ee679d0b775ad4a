"""Hekla: a batch system for Kubernetes, and a small Kubernetes to run it on."""

__version__ = "0.1.0"
