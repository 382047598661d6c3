"""Settings of laws whose every example takes tenths of a second."""

from hypothesis import settings

_MANY = 1000
"""So many examples have time."""
_ALL = settings().max_examples
COSTLY = settings(max_examples=_ALL if _ALL >= _MANY else max(5, _ALL // 3))
"""A third of the examples in `make test`, others with each seed; all in `make soak`."""
