"""The API server's validation of pods, quotas, limit ranges and rolling updates, as far as resources are concerned."""
