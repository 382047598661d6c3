"""Custom policies by name: built-in ones, those in files, those of installed packages."""

import traceback
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_policy import CPUPicker, whole_caches
from nodewright.engine.core.eviction.eviction_policy import KUBELET, EvictionPolicy
from nodewright.engine.core.eviction.eviction_policy import POLICIES as EVICTION
from nodewright.engine.core.lending.predictors import PREDICTORS, Predictor
from nodewright.engine.core.topology.custom import TopologyPolicy, annotated_policy
from nodewright.engine.node.node_config import CustomPolicies
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import PolicyNames
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.model.values.golang import is_number_of_digits, saturated_int

BUILT_IN_POLICIES: tuple[CustomPolicy, ...] = (
    annotated_policy,
    whole_caches,
    *EVICTION.values(),
    *PREDICTORS.values(),
)
ENTRY_POINT_GROUP = "nodewright.policies"
"""The entry point group of packages with policies: each entry names a policy, or a module with policies."""

P = TypeVar("P", bound=CustomPolicy)


class PolicyRegistry(msgspec.Struct, frozen=True):
    """The policies that are available by name."""

    policies: tuple[CustomPolicy, ...] = BUILT_IN_POLICIES

    def of_kind(self, kind: type[P]) -> tuple[P, ...]:
        """All policies of a kind, sorted by name."""
        policies = (policy for policy in self.policies if isinstance(policy, kind))
        return tuple(sorted(policies, key=lambda policy: policy.name))

    def find(self, kind: type[P], name: str, *, source: str) -> P:
        """The policy of that kind and name; installed packages are searched last.

        ``source`` is the place of the name in the input, for errors.
        Errors: InputError if there is no such policy, or if it is the kubelet's own.
        """
        for candidates in (self.of_kind(kind), PolicyRegistry(installed_policies()).of_kind(kind)):
            for policy in candidates:
                if policy.name == name:
                    return policy
        if name in kind.builtin_names:
            rule = "is the kubelet's own policy: choose it in the kubelet configuration"
        else:
            names = [policy.name for policy in self.of_kind(kind)]
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names) or 'none'}"
            rule = f"no {kind.kind} of this name is built in, installed or in a file of --policies; {hint}"
        raise InputError([Fault(source=source, value=name, rule=rule)])


def load_policies(files: Sequence[str] = ()) -> PolicyRegistry:
    """The built-in policies and those of the files; runs the files.

    Errors: InputError for files that fail, that define no policy, or that reuse a name.
    """
    policies = list(BUILT_IN_POLICIES)
    owners = {(policy.kind, policy.name): "nodewright" for policy in BUILT_IN_POLICIES}
    faults = []
    for file in files:
        file_policies = _policies_of(_run(file))
        if not file_policies:
            faults.append(Fault(source=file, rule="defines no policy"))
        for policy in file_policies:
            owner = owners.setdefault((policy.kind, policy.name), file)
            if owner != file:
                rule = f"{owner} already defines a {policy.kind} of this name"
                faults.append(Fault(source=file, value=policy.name, rule=rule))
            policies.append(policy)
    if faults:
        raise InputError(faults)
    return PolicyRegistry(tuple(policies))


def installed_policies() -> tuple[CustomPolicy, ...]:
    """The policies of installed packages.

    Errors: InputError for one that cannot be loaded.
    """
    from importlib import metadata  # noqa: PLC0415 - slow to import, and rarely needed

    policies: list[CustomPolicy] = []
    for entry in sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            loaded = entry.load()
        except Exception as error:
            rule = f"cannot be loaded: {type(error).__name__}: {error}"
            raise InputError(
                [Fault(source=f"entry point {entry.name} of {ENTRY_POINT_GROUP}", rule=rule)]
            ) from error
        policies += [loaded] if isinstance(loaded, CustomPolicy) else _policies_of(loaded)
    return tuple(policies)


def _policies_of(module: ModuleType) -> list[CustomPolicy]:
    """The policies that a module defines, each once, in order of definition."""
    policies: Iterable[CustomPolicy] = (var for var in vars(module).values() if isinstance(var, CustomPolicy))
    return list({id(policy): policy for policy in policies if policy not in BUILT_IN_POLICIES}.values())


def _run(file: str) -> ModuleType:
    path = Path(file)
    if not path.is_file():
        raise InputError([Fault(source=file, rule="is not a file")])
    spec = spec_from_file_location(f"nodewright_policies_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError([Fault(source=file, rule="is not a Python file (*.py)")])
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        rule = f"fails when run: {type(error).__name__}: {error}"
        raise InputError([Fault(source=f"{file}:{_line(error, path)}", rule=rule)]) from error
    return module


def _line(error: Exception, path: Path) -> int:
    """The line of the file that raised the error."""
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if Path(frame.filename) == path), 1)


def chosen_policies(
    names: PolicyNames, policies: Sequence[CustomPolicy], cpu_manager_policy: str, source: str
) -> CustomPolicies:
    """The custom policies of a node: ``policies``, else those that the profile names.

    Errors: InputError for two of a kind, an unknown name, or a CPU picker without the static CPU manager.
    """
    chosen = CustomPolicies(
        topology=_policy(TopologyPolicy, names.topology, policies, source),
        cpu_picker=_policy(CPUPicker, names.cpu_picker, policies, source),
        eviction=_unless_kubelet_policy(_policy(EvictionPolicy, names.eviction, policies, source)),
        predictor=chosen_predictor(names.predictor, f"{source}: spec.policies.predictor"),
    )
    if chosen.cpu_picker is not None and cpu_manager_policy != "static":
        rule = f"needs cpuManagerPolicy static, not {cpu_manager_policy}"
        path = f"spec.policies.{CPUPicker.profile_field}"
        raise InputError([Fault(source=source, path=path, value=chosen.cpu_picker.name, rule=rule)])
    return chosen


def chosen_predictor(text: str, source: str, known: PolicyRegistry | None = None) -> Predictor | None:
    """The predictor of NAME or NAME:PERCENT, its own margin replaced; None for an empty text.

    Errors: InputError for an unknown name and for a margin that is no whole number from 0 to 1000.
    """
    if not text:
        return None
    name, separator, margin = text.partition(":")
    predictor = (known or PolicyRegistry()).find(Predictor, name, source=source)
    if not separator:
        return predictor
    if not is_number_of_digits(margin) or saturated_int(margin) > MAX_MARGIN_PERCENT:
        rule = f"must be NAME or NAME:PERCENT with a margin from 0 to {MAX_MARGIN_PERCENT}"
        raise InputError([Fault(source=source, value=text, rule=rule)])
    return replace(predictor, margin_percent=int(margin))


MAX_MARGIN_PERCENT = 1000


def _unless_kubelet_policy(policy: EvictionPolicy | None) -> EvictionPolicy | None:
    return None if policy == KUBELET else policy


def _policy(kind: type[P], name: str, policies: Sequence[CustomPolicy], source: str) -> P | None:
    matching = [policy for policy in policies if isinstance(policy, kind)]
    if len(matching) > 1:
        both = " and ".join(policy.name for policy in matching)
        raise InputError([Fault(source=source, rule=f"more than one {kind.kind}: {both}")])
    if matching:
        return matching[0]
    return (
        PolicyRegistry().find(kind, name, source=f"{source}: spec.policies.{kind.profile_field}")
        if name
        else None
    )
