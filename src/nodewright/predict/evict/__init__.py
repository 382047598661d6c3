"""Which pods are evicted at a given usage: readings in, ranked list and reasons out."""
