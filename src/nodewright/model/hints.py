"""A hint: a set of NUMA nodes that would do, and whether it is preferred."""

from dataclasses import dataclass

from nodewright.values.idset import NUMASet


@dataclass(frozen=True, slots=True)
class Hint:
    """NUMA nodes that could serve a request; None stands for no opinion on which."""

    numa: NUMASet | None
    preferred: bool
