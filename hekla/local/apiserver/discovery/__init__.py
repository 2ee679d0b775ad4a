"""What is served: discovery, OpenAPI, definitions of custom kinds."""
