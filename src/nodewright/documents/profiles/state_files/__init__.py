"""The kubelet's state files: read and written to the byte, with their checksums."""
