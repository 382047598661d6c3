"""A command line of the kubelet as options of the agent and fields of the configuration."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.assembly.kubelet_flags import (
    FLAG_KINDS,
    FLAG_PATHS,
    HARMLESS_FLAGS,
    OPTION_FLAGS,
    REFUSED_FLAGS,
    FlagKind,
)
from nodewright.model.errors import Fault, InputError

_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?P<separator>=?)(?P<value>.*)", re.DOTALL)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class KubeletCommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line of the kubelet asks for."""

    options: Mapping[str, str]
    """Options of the agent, by their name there."""
    overrides: tuple[tuple[str, Any], ...] = ()
    """Fields of the configuration by their path, with the values of flags, which win over the file."""
    ignored: tuple[str, ...] = ()
    """A line for each ignored flag."""
    is_version_query: bool = False


class _Flag(NamedTuple):
    """A flag as it is written."""

    name: str
    value: str


def parse_kubelet_flags(arguments: Sequence[str]) -> KubeletCommandLine:
    """What the arguments ask for.

    Follows: Go, github.com/spf13/pflag: `--flag value`, `--flag=value`; a boolean takes `=` only; underscores are
        hyphens; a map that is repeated is merged, any other flag is replaced, and lists grow.
    Errors:  InputError with all faults.
    """
    options, overrides = dict[str, str](), dict[str, Any]()
    ignored, faults = dict[str, str](), list[Fault]()
    is_version_query = False
    for flag in _written_flags(arguments, faults):
        name, value = flag
        kind = FLAG_KINDS.get(name)
        if name == "version":
            is_version_query = value != "false"
        elif kind is None:
            faults.append(Fault(source=f"--{name}", rule="no flag of the kubelet 1.36"))
        elif name in OPTION_FLAGS:
            option = OPTION_FLAGS[name]
            options[option] = (
                f"{options[option]},{value}" if name == "node-labels" and option in options else value
            )
        elif name in HARMLESS_FLAGS:
            ignored[name] = f"--{name}: ignored: {HARMLESS_FLAGS[name][1]}"
        elif name in REFUSED_FLAGS:
            if value != REFUSED_FLAGS[name][1]:
                faults.append(Fault(source=f"--{name}", value=value, rule=REFUSED_FLAGS[name][2]))
        else:
            _override(overrides, flag, kind, faults)
    if faults:
        raise InputError(faults)
    return KubeletCommandLine(
        options=options,
        overrides=tuple((FLAG_PATHS[name], value) for name, value in overrides.items()),
        ignored=tuple(ignored.values()),
        is_version_query=is_version_query,
    )


def overridden(document: dict[str, Any], overrides: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A configuration with the fields that flags set; feature gates of flags are added to those of the file.

    Follows: v1.36, cmd/kubelet/app/server.go, kubeletConfigFlagPrecedence.

    >>> overridden({"maxPods": 5, "authentication": {"webhook": {"enabled": True}}},
    ...            [("authentication.webhook.enabled", False), ("kubeletCgroups", "")])
    {'maxPods': 5, 'authentication': {'webhook': {'enabled': False}}, 'kubeletCgroups': ''}
    """
    for path, value in overrides:
        document = _with_field(document, path.split("."), value)
    return document


def _with_field(document: Any, names: Sequence[str], value: Any) -> Any:
    """The value with a field set; one that is no mapping stays, and is refused when the file is checked."""
    if not isinstance(document, dict | None):
        return document
    fields = dict(document or {})
    name, *rest = names
    if rest:
        fields[name] = _with_field(fields.get(name), rest, value)
    elif name == "featureGates":
        gates = fields.get(name)
        fields[name] = {**(gates or {}), **value} if isinstance(gates, dict | None) else gates
    else:
        fields[name] = value
    return fields


def _written_flags(arguments: Sequence[str], faults: list[Fault]) -> Iterable[_Flag]:
    """The flags with their values."""
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        match = _FLAG.fullmatch(argument)
        if match is None or (not argument.startswith("--") and match["name"] != "v"):
            faults.append(Fault(value=argument, rule="the kubelet takes flags only"))
            continue
        name = match["name"].replace("_", "-")
        if match["separator"]:
            yield _Flag(name, match["value"])
        elif FLAG_KINDS.get(name) in (None, FlagKind.BOOLEAN):
            yield _Flag(name, "true")
        elif remaining:
            yield _Flag(name, remaining.pop(0))
        else:
            faults.append(Fault(source=f"--{name}", rule="flag needs an argument"))


def _override(overrides: dict[str, Any], flag: _Flag, kind: FlagKind, faults: list[Fault]) -> None:
    try:
        value = _PARSERS[kind](flag.value)
    except ValueError:
        faults.append(Fault(source=f"--{flag.name}", value=flag.value, rule=f"must be {kind}"))
        return
    earlier = overrides.get(flag.name)
    if isinstance(earlier, dict):
        value = {**earlier, **value}
    elif isinstance(earlier, list):
        value = [*earlier, *value]
    overrides[flag.name] = value


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(text)
    return _BOOLEANS[text.lower()]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _pairs(text: str, separator: str = "=") -> dict[str, str]:
    pairs = {}
    for item in _items(text):
        key, equals, value = item.partition(separator)
        if not equals:
            raise ValueError(item)
        pairs[key.strip()] = value.strip()
    return pairs


def _headers(text: str) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for item in _items(text):
        name, colon, value = item.partition(":")
        if not colon:
            raise ValueError(item)
        headers.setdefault(name, []).append(value)
    return headers


def _reservations(text: str) -> list[dict[str, Any]]:
    """The memory reservations of NUMA nodes: `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi`."""
    reservations = []
    for item in text.split(";"):
        numa_node, _, limits = item.strip().partition(":")
        reservations.append({"numaNode": int(numa_node), "limits": _pairs(limits)})
    return reservations


def _taints(text: str) -> list[dict[str, str]]:
    taints = []
    for item in _items(text):
        key_value, _, effect = item.rpartition(":")
        key, _, value = key_value.partition("=")
        if not key:
            raise ValueError(item)
        taints.append({"key": key, **({"value": value} if value else {}), "effect": effect})
    return taints


_PARSERS: Mapping[FlagKind, Callable[[str], Any]] = {
    FlagKind.TEXT: str,
    FlagKind.BOOLEAN: _boolean,
    FlagKind.NUMBER: int,
    FlagKind.LIST: _items,
    FlagKind.MAP: _pairs,
    FlagKind.BOOLEAN_MAP: lambda text: {name: _boolean(value) for name, value in _pairs(text).items()},
    FlagKind.THRESHOLDS: lambda text: _pairs(text, "<"),
    FlagKind.HEADERS: _headers,
    FlagKind.RESERVATIONS: _reservations,
    FlagKind.TAINTS: _taints,
}


def kubelet_settings(command_line: KubeletCommandLine, socket: Path) -> AgentSettings:
    """The settings of an agent that stands in for a kubelet; ``socket`` is that of its own API.

    Departs: a kubelet without `cgroupRoot` uses the machine's root; the agent changes no cgroup but those below its own.
    """
    options = command_line.options

    def path(name: str) -> Path | None:
        return Path(options[name]) if options.get(name) else None

    return AgentSettings(
        config=path("config"),
        config_dir=path("config_dir"),
        manifests=None,
        manifest_url=None,
        manifest_url_headers=(),
        workload_dir=None,
        root_dir=(path("root_dir") or Path("/var/lib/kubelet")).absolute(),
        device_plugin_dir=None,
        cgroup_root=None,
        endpoint=None,
        node_name=options.get("node_name") or None,
        feature_gates=(),
        release=None,
        kubelet_defects="avoid",
        eviction_policy="adaptive",
        socket=socket,
        socket_group="",
        kubelet_api=True,
        token_auth_file=None,
        grants=(),
        pod_resources_socket=None,
        drain_on_exit=False,
        dry_run=None,
        node=None,
        kubeconfig=options.get("kubeconfig") or None,
        node_labels=tuple(filter(None, [options.get("node_labels", "")])),
        node_ip=options.get("node_ip", ""),
        cloud_provider=options.get("cloud_provider", ""),
        cert_dir=path("cert_dir"),
        bootstrap_kubeconfig=options.get("bootstrap_kubeconfig") or None,
        is_kubelet=True,
        config_overrides=command_line.overrides,
    )
