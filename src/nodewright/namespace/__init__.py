"""Floor 3: a namespace as the API server guards it: limit ranges, quotas, and what controllers ask of them."""
