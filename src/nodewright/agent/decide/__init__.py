"""What the agent does next: a pure function from state and observation to state and effects."""
