"""A node as text and pictures: its machine, placements, cgroup files, NodeResourceTopology."""
