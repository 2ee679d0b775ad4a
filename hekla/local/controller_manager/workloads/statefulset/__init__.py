"""StatefulSets: pods with names, places and volumes of their own that outlive them.  Reference:
local-cluster 10.6."""
