"""Device plugins of the agent: registration, allocation for containers, placement of pods."""
