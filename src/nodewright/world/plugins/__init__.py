"""Device plugins, as they are found, asked and told: registration on a socket, and one line to each plugin."""
