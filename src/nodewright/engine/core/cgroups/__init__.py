"""The cgroups of a node, and the values of their files."""
