"""The network of the pods: a namespace for each, a bridge between them, names, services, and the
way out. See docs/decisions/0155."""
