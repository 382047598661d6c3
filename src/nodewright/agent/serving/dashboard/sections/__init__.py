"""The sections of a dashboard, as documents."""
