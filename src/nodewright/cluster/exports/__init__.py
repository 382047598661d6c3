"""The export of a node: served over HTTPS, followed and read."""
