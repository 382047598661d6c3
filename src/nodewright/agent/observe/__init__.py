"""What the agent observes and reports: manifest sources, pressure, usage, events, metrics."""
