"""The kubelet's resource decisions, predicted, explained and carried out.

>>> from nodewright import Node, Quantity
>>> str(Quantity.parse("1.5Gi") + Quantity.parse("512Mi"))
'2Gi'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodewright.ask import Answer, Node, load_pods
    from nodewright.model.objects import Pod
    from nodewright.node.step import Decision
    from nodewright.values.idset import CPUSet, NUMASet
    from nodewright.values.quantity import Quantity
    from nodewright.world.errors import InputError, WorldError

__all__ = [
    "Answer",
    "CPUSet",
    "Decision",
    "InputError",
    "NUMASet",
    "Node",
    "Pod",
    "Quantity",
    "WorldError",
    "load_pods",
]

_HOMES = {
    "Answer": "nodewright.ask",
    "CPUSet": "nodewright.values.idset",
    "Decision": "nodewright.node.step",
    "InputError": "nodewright.world.errors",
    "NUMASet": "nodewright.values.idset",
    "Node": "nodewright.ask",
    "Pod": "nodewright.model.objects",
    "Quantity": "nodewright.values.quantity",
    "WorldError": "nodewright.world.errors",
    "load_pods": "nodewright.ask",
}


def __getattr__(name: str) -> Any:
    # Loaded when it is wanted: a command that needs little starts quickly.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
