"""The values that the agent decides on and with: state, observations, effects."""
