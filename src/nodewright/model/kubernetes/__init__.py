"""The API objects, with the fields that decisions depend on, and the kubelet's configuration."""
