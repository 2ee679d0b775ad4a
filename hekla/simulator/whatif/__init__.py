"""Questions of the kind "what if": a copy of a cluster is changed, and the engine asked again."""
