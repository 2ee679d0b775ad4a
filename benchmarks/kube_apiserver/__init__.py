"""Figures on a kube-apiserver with etcd, somebody else's server: what our work costs it."""
