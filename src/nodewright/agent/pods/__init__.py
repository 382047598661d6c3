"""The life of a pod on the agent, from its manifest to its end."""
