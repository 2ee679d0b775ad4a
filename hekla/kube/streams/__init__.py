"""The protocols of upgraded connections: WebSocket and SPDY/3.1, for `kubectl exec` and
`port-forward`."""
