"""One module a family: questions of recorded vectors, answered through the public engine."""
