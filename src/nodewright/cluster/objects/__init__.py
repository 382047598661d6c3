"""Nodes and objects of a cluster as documents."""
