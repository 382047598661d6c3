"""One question a module, pure. Siblings do not import one another; all may import `requests`."""
