"""The network's tree of nodes: how many nodes each part has, and finding the parts by labels."""
