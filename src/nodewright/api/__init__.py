"""Floor 7: servers, and those who talk to them."""
