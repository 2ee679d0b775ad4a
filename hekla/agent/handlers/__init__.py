"""From a pod and its node to the cgroup files that should be written: one module a feature."""
