"""Other people's clients, unmodified, against a cluster of Hekla's: whatever speaks to Kubernetes
must not notice the difference."""
