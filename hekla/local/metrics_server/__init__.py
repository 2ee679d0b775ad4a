"""`metrics.k8s.io` for a local cluster: what nodes and pods use now, for `kubectl top`, autoscalers and
whoever else asks for it."""
