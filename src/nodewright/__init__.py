"""The kubelet's resource decisions, predicted, explained and carried out.

>>> from nodewright import Node, Quantity
>>> str(Quantity.parse("1.5Gi") + Quantity.parse("512Mi"))
'2Gi'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodewright.engine.node.step import Decision
    from nodewright.model.errors import HostError, InputError
    from nodewright.model.kubernetes.objects import Pod
    from nodewright.model.values.idset import CPUSet, NUMASet
    from nodewright.model.values.quantity import Quantity
    from nodewright.predict.library import InteractiveAdmitResult as AdmitResult
    from nodewright.predict.library import InteractiveExplanation as Explanation
    from nodewright.predict.library import InteractiveNode as Node
    from nodewright.predict.python_sources import load_pods
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
    "CPUSet": "nodewright.model.values.idset",
    "Decision": "nodewright.engine.node.step",
    "HostError": "nodewright.model.errors",
    "InputError": "nodewright.model.errors",
    "NUMASet": "nodewright.model.values.idset",
    "Explanation": "nodewright.predict.library:InteractiveExplanation",
    "Node": "nodewright.predict.library:InteractiveNode",
    "Pod": "nodewright.model.kubernetes.objects",
    "Quantity": "nodewright.model.values.quantity",
    "__version__": "nodewright.version",
    "load_pods": "nodewright.predict.library",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a command that needs little starts quickly.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, class_name = _MODULES[name].partition(":")
    return getattr(importlib.import_module(module), class_name or name)
