"""The kubelet's resource decisions, predicted, explained and carried out.

>>> from nodewright import Node, Quantity
>>> str(Quantity.parse("1.5Gi") + Quantity.parse("512Mi"))
'2Gi'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodewright.engine.node.step import Decision
    from nodewright.errors import HostError, InputError
    from nodewright.kubernetes.objects import Pod
    from nodewright.predict.library import InteractiveAdmitResult as AdmitResult
    from nodewright.predict.library import InteractiveExplanation as Explanation
    from nodewright.predict.library import InteractiveNode as Node
    from nodewright.predict.library import load_pods
    from nodewright.values.idset import CPUSet, NUMASet
    from nodewright.values.quantity import Quantity
    from nodewright.version import __version__

__all__ = [
    "AdmitResult",
    "CPUSet",
    "Decision",
    "Explanation",
    "HostError",
    "InputError",
    "NUMASet",
    "Node",
    "Pod",
    "Quantity",
    "__version__",
    "load_pods",
]

_MODULES = {
    "AdmitResult": "nodewright.predict.library:InteractiveAdmitResult",
    "CPUSet": "nodewright.values.idset",
    "Decision": "nodewright.engine.node.step",
    "HostError": "nodewright.errors",
    "InputError": "nodewright.errors",
    "NUMASet": "nodewright.values.idset",
    "Explanation": "nodewright.predict.library:InteractiveExplanation",
    "Node": "nodewright.predict.library:InteractiveNode",
    "Pod": "nodewright.kubernetes.objects",
    "Quantity": "nodewright.values.quantity",
    "__version__": "nodewright.version",
    "load_pods": "nodewright.predict.library",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a command that needs little starts quickly.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, class_name = _MODULES[name].partition(":")
    return getattr(importlib.import_module(module), class_name or name)
