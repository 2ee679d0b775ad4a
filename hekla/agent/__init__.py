"""The colocation agent of one node: online and offline pods side by side, each with its share.

A handler is a function from a pod and its node to the cgroup files that should be written; it knows
no API server.  `agent.py` runs the handlers, `daemon.py` puts everything together.
"""
