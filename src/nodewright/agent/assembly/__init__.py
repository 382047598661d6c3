"""Assembles and runs the agent: settings, parts, servers, shutdown."""
