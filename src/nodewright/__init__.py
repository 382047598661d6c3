"""The kubelet's resource decisions, predicted, explained and carried out.

>>> from nodewright import Node, Quantity
>>> str(Quantity.parse("1.5Gi") + Quantity.parse("512Mi"))
'2Gi'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodewright.engine import AdmitResult, Node, load_pods
    from nodewright.errors import HostError, InputError
    from nodewright.kubernetes.objects import Pod
    from nodewright.node.step import Decision
    from nodewright.values.idset import CPUSet, NUMASet
    from nodewright.values.quantity import Quantity

__all__ = [
    "AdmitResult",
    "CPUSet",
    "Decision",
    "HostError",
    "InputError",
    "NUMASet",
    "Node",
    "Pod",
    "Quantity",
    "load_pods",
]

_MODULES = {
    "AdmitResult": "nodewright.engine",
    "CPUSet": "nodewright.values.idset",
    "Decision": "nodewright.node.step",
    "HostError": "nodewright.errors",
    "InputError": "nodewright.errors",
    "NUMASet": "nodewright.values.idset",
    "Node": "nodewright.engine",
    "Pod": "nodewright.kubernetes.objects",
    "Quantity": "nodewright.values.quantity",
    "load_pods": "nodewright.engine",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a command that needs little starts quickly.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
