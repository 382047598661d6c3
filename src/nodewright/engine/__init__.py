"""The decisions: the questions of the core, the API server's admission, and the node as one function. Pure."""
