"""Floor 7: servers."""
