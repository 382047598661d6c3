"""What differs between Kubernetes releases: feature gates, defaults, rules."""
