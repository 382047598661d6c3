"""What the API server makes of objects: the one order in which it decides, for all commands."""
