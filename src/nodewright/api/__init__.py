"""Floor 6: servers."""
