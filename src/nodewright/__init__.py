"""The kubelet's resource decisions, predicted, explained and carried out.

>>> from nodewright import Node, Quantity
>>> str(Quantity.parse("1.5Gi") + Quantity.parse("512Mi"))
'2Gi'
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

    from nodewright.engine.node.step import Decision
    from nodewright.model.errors import HostError, InputError
    from nodewright.model.kubernetes.objects import Pod
    from nodewright.model.values.idset import CPUSet, NUMASet
    from nodewright.model.values.quantity import Quantity
    from nodewright.predict.explain.explanation import Explanation
    from nodewright.predict.node import AdmitResult, Node
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
    "AdmitResult": "nodewright.predict.node",
    "CPUSet": "nodewright.model.values.idset",
    "Decision": "nodewright.engine.node.step",
    "HostError": "nodewright.model.errors",
    "InputError": "nodewright.model.errors",
    "NUMASet": "nodewright.model.values.idset",
    "Explanation": "nodewright.predict.explain.explanation",
    "Node": "nodewright.predict.node",
    "Pod": "nodewright.model.kubernetes.objects",
    "Quantity": "nodewright.model.values.quantity",
    "__version__": "nodewright.version",
    "load_pods": "nodewright.predict.python_sources",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a command that needs little starts quickly.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion in a notebook or a prompt."""
    return __all__


_MODEL = ("errors", "hardware", "kubernetes", "reasons", "releases", "values")
_DOCUMENTS = ("formats", "output", "profiles")
_MOVED = {
    **{name: f"nodewright.model.{name}" for name in _MODEL},
    **{name: f"nodewright.documents.{name}" for name in _DOCUMENTS},
    "core": "nodewright.engine.core",
    "conformance": "nodewright.testing.conformance",
}
"""The packages that had other paths until 0.3, by their name then."""


class _MovedModules:
    """Imports a module by its path until 0.3: the same object as by its own path."""

    def find_spec(self, name: str, *_: object) -> "ModuleSpec | None":
        package, *parts = name.split(".", 2)
        if package != __name__ or not parts or parts[0] not in _MOVED:
            return None
        from importlib.machinery import ModuleSpec  # noqa: PLC0415 - start-up time

        origin = ".".join([_MOVED[parts[0]], *parts[1:]])
        return ModuleSpec(name, self, origin=origin)  # type: ignore[arg-type]  # it has a loader's methods

    def create_module(self, spec: "ModuleSpec") -> "ModuleType":
        assert spec.origin is not None
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: "ModuleType") -> None:
        # The import system has replaced the module's own spec.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state

    def main_code(self, name: str) -> "CodeType":
        from importlib.util import find_spec  # noqa: PLC0415 - start-up time

        origin = f"{_MOVED[name.partition('.')[2]]}.__main__"
        return find_spec(origin).loader.get_code(origin)  # type: ignore[union-attr,no-any-return] # it is a file

    get_code = main_code  # what `python -m nodewright.conformance` asks a loader for


# First, because the path of a moved package would find its modules a second time.
sys.meta_path.insert(0, _MovedModules())
