"""Answers before a deployment: the public Node, and one package for each command."""
