"""Running nodes as profiles: what a kubelet left on disk, and what a cluster tells of a node."""
