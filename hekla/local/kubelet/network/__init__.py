"""The network of the pods: a namespace each, a bridge between them, names, services, and the way
out.  See docs/decisions/0155."""
