"""What the API server makes of objects: defaults, plugins, validation, limit ranges and quotas."""
