"""DaemonSets: one pod on every node that suits.  Reference: local-cluster 10.6."""
