"""What pods and the node use: measured here once, served in a kubelet's three forms."""
