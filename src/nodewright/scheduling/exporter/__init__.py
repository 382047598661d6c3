"""Assembles `nodewright export`: the sources of a node, its server, and what it publishes in a cluster."""
