"""The HTTP and gRPC servers of the agent."""
