"""What a node could lend of its requests, by a history of its usage."""
