"""Sweeps: the same fleet under other settings of its kubelets and its scheduler, all combinations of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

SCORES = "scores"
"""The axis that is the scheduler's, and no field of a KubeletConfiguration."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A field, by its path with dots, and the values that it takes in turn."""

    field: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One combination: a value for each field."""

    settings: Mapping[str, Any]
    part: Mapping[str, str] = field(default_factory=dict)
    """The label by which the fleet is cut, and the value of its nodes here; empty: they are all nodes."""

    @property
    def told(self) -> Mapping[str, Any]:
        """All that tells it from the others."""
        return {**self.part, **self.settings}

    @property
    def name(self) -> str:
        """The combination as text: `topologyManagerPolicy=restricted`."""
        return ", ".join(f"{name}={_text(value)}" for name, value in self.told.items())

    @property
    def scores(self) -> str | None:
        """What the scheduler is to like in a node; None: as it is."""
        return self.settings.get(SCORES)

    def configuration(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """A KubeletConfiguration with these values in it.

        >>> Point({"a.b": 1, "c": 2}).configuration({"a": {"x": 0}})
        {'a': {'x': 0, 'b': 1}, 'c': 2}
        """
        found: dict[str, Any] = dict(base)
        for path, value in self.settings.items():
            if path == SCORES:
                continue
            *parents, last = path.split(".")
            holder = found
            for name in parents:
                holder[name] = dict(holder.get(name) or {})
                holder = holder[name]
            holder[last] = value
        return found


def points(axes: Sequence[Axis]) -> tuple[Point, ...]:
    """All combinations, those of the last axis next to one another."""
    fields = [axis.field for axis in axes]
    combinations = product(*(axis.values for axis in axes))
    return tuple(Point(dict(zip(fields, values, strict=True))) for values in combinations)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
