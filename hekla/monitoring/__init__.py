"""Clients of the systems that measure nodes and pods: Prometheus and what answers like it, and the
resource and custom metrics APIs of a cluster.  The scheduler and the descheduler read them here."""
