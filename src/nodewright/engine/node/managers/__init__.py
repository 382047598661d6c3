"""The resource managers of a node as the topology manager sees them."""
