"""Device plugins: the registration server, the clients of plugins, and conversions of their messages."""
