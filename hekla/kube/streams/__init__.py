"""What connections speak after they have left HTTP: WebSocket and SPDY/3.1, as `kubectl exec` and
`port-forward` do."""
