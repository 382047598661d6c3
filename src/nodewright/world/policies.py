"""Policies that decide in the kubelet's place, by name: ours, those in files, those of installed packages."""

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from nodewright.core.cpu.whole_caches import whole_caches
from nodewright.core.eviction import POLICIES as EVICTION
from nodewright.core.topology.pod_wish import pod_wish
from nodewright.model.policies import Policy
from nodewright.world.errors import Fault, InputError

OURS: tuple[Policy, ...] = (pod_wish, whole_caches, *EVICTION.values())
GROUP = "nodewright.policies"
"""The entry points of packages that bring policies: each names a policy, or a module that has some."""

P = TypeVar("P", bound=Policy)


@dataclass(frozen=True, slots=True)
class Registry:
    """The policies that can be asked for by name."""

    known: tuple[Policy, ...] = OURS

    def of_kind(self, kind: type[P]) -> tuple[P, ...]:
        """All of that kind, by name."""
        found = (one for one in self.known if isinstance(one, kind))
        return tuple(sorted(found, key=lambda one: one.name))

    def find(self, kind: type[P], name: str, *, asked: str) -> P:
        """The policy of that kind and name; installed packages are looked into if nothing else has it.

        ``asked`` is where the name stands.
        Errors: InputError where nobody has it, or where it is the kubelet's own.
        """
        for known in (self.of_kind(kind), Registry(installed()).of_kind(kind)):
            for one in known:
                if one.name == name:
                    return one
        if name in kind.kubelets:
            rule = "is the kubelet's own: its configuration chooses it"
        else:
            names = [one.name for one in self.of_kind(kind)]
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names) or 'none'}"
            rule = (
                f"is no {kind.kind} of ours, of an installed package or of a file named by --policies; {hint}"
            )
        raise InputError([Fault(source=asked, value=name, rule=rule)])


def registry(files: Sequence[str] = ()) -> Registry:
    """Our policies and those of the files, which are run for it.

    Errors: InputError for files that fail, that have no policies, or that have one with a name that is taken.
    """
    known, owners = list(OURS), {(one.kind, one.name): "nodewright" for one in OURS}
    faults = []
    for file in files:
        found = _policies_of(_run(file))
        if not found:
            faults.append(Fault(source=file, rule="has no policy"))
        for one in found:
            owner = owners.setdefault((one.kind, one.name), file)
            if owner != file:
                rule = f"{owner} has a {one.kind} of this name, too"
                faults.append(Fault(source=file, value=one.name, rule=rule))
            known.append(one)
    if faults:
        raise InputError(faults)
    return Registry(tuple(known))


def installed() -> tuple[Policy, ...]:
    """The policies that installed packages bring.

    Errors: InputError for one that cannot be loaded.
    """
    from importlib import metadata  # noqa: PLC0415 - slow to import, and seldom asked for

    found: list[Policy] = []
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda one: one.name):
        try:
            loaded = entry.load()
        except Exception as error:
            rule = f"cannot be loaded: {type(error).__name__}: {error}"
            raise InputError([Fault(source=f"entry point {entry.name} of {GROUP}", rule=rule)]) from error
        found += [loaded] if isinstance(loaded, Policy) else _policies_of(loaded)
    return tuple(found)


def _policies_of(module: ModuleType) -> list[Policy]:
    """The policies that a module has, each once, in its order."""
    found: Iterable[Policy] = (one for one in vars(module).values() if isinstance(one, Policy))
    return list({id(one): one for one in found if one not in OURS}.values())


def _run(file: str) -> ModuleType:
    path = Path(file)
    if not path.is_file():
        raise InputError([Fault(source=file, rule="is no file")])
    spec = spec_from_file_location(f"nodewright_policies_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError([Fault(source=file, rule="is no Python file (*.py)")])
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        rule = f"cannot be run: {type(error).__name__}: {error}"
        raise InputError([Fault(source=f"{file}:{_line(error, path)}", rule=rule)]) from error
    return module


def _line(error: Exception, path: Path) -> int:
    """The line of the file at which it failed."""
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    return next((one.lineno or 1 for one in reversed(frames) if Path(one.filename) == path), 1)
