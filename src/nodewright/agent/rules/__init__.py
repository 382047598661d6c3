"""Rules of the kubelet that the agent alone applies: environment, lifecycle, images, security, shutdown. Pure."""
