"""Jobs of Kubernetes' own group: pods that run to their end, a number of times.  Reference:
local-cluster 10.6."""
