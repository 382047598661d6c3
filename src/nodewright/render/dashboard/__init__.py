"""What a dashboard shows, as documents: a section each, made from states and plain facts."""
