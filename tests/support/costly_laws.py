"""Settings of laws whose every example takes tenths of a second."""

from hypothesis import settings

COSTLY = settings(max_examples=max(5, settings().max_examples // 3))
"""A third of the examples, others with each seed."""
