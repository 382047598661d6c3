"""JSON as Go's encoding/json parses and writes it, for the kubelet's state files."""
