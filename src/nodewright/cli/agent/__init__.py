"""The agent of this machine, and the commands that connect to it."""
