"""Floor 3: bytes in, values out: manifests, machines, files."""
