"""Floor 8: servers, and those who talk to them."""
