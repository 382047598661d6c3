"""The kubelet's flags, and a command line of the kubelet as options of the agent and fields of the configuration.

Every flag has one of three uses: it sets a field of the configuration or an option of the agent; it is harmless, so that
it is listed once and ignored; or it is refused, because pods would run otherwise than it says.

Follows: v1.36, cmd/kubelet/app/options: options.go, globalflags.go, globalflags_linux.go;
    component-base/logs/api/v1/options.go; component-base/version/verflag/verflag.go.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.model.errors import Fault, InputError


class FlagKind(StrEnum):
    """The notation of a flag's value."""

    TEXT = "text"
    BOOLEAN = "true|false"
    NUMBER = "number"
    LIST = "item,item"
    MAP = "key=value,..."
    BOOLEAN_MAP = "key=true|false,..."
    THRESHOLDS = "signal<quantity,..."
    HEADERS = "name:value,..."
    RESERVATIONS = "node:resource=quantity,..."
    TAINTS = "key=value:effect,..."


_KIND = FlagKind


_OWN_NAMES: Mapping[FlagKind, tuple[str, ...]] = {
    _KIND.TEXT: (
        *("address", "cgroup-driver", "cgroup-root", "cluster-domain", "container-log-max-size"),
        *("container-runtime-endpoint", "cpu-manager-policy", "cpu-manager-reconcile-period"),
        *("eviction-pressure-transition-period", "file-check-frequency", "healthz-bind-address"),
        *("http-check-frequency", "image-service-endpoint", "kube-reserved-cgroup"),
        *("kubelet-cgroups", "memory-manager-policy", "node-status-update-frequency", "resolv-conf"),
        *("runtime-request-timeout", "streaming-connection-idle-timeout", "sync-frequency"),
        *("system-cgroups", "system-reserved-cgroup", "tls-cert-file", "tls-min-version"),
        *("tls-private-key-file", "topology-manager-policy", "topology-manager-scope"),
    ),
    _KIND.BOOLEAN: (
        *("enable-controller-attach-detach", "enable-debugging-handlers", "enable-server"),
        *("fail-swap-on", "kernel-memcg-notification", "local-storage-capacity-isolation"),
        *("register-node", "rotate-certificates", "serialize-image-pulls"),
    ),
    _KIND.NUMBER: (
        *("container-log-max-files", "event-burst", "eviction-max-pod-grace-period", "healthz-port"),
        *("max-pods", "node-status-max-images", "oom-score-adj", "pods-per-core", "port"),
        *("read-only-port",),
    ),
    _KIND.LIST: ("allowed-unsafe-sysctls", "enforce-node-allocatable", "tls-cipher-suites"),
    _KIND.MAP: (
        *("cpu-manager-policy-options", "eviction-minimum-reclaim", "eviction-soft-grace-period"),
        *("kube-reserved", "qos-reserved", "system-reserved", "topology-manager-policy-options"),
    ),
    _KIND.BOOLEAN_MAP: ("feature-gates",),
    _KIND.THRESHOLDS: ("eviction-hard", "eviction-soft"),
    _KIND.RESERVATIONS: ("reserved-memory",),
    _KIND.TAINTS: ("register-with-taints",),
}
"""Flags with the name of their field, by kind."""
_FIELDS: Mapping[FlagKind, Mapping[str, str]] = {
    _KIND.TEXT: {
        "authentication-token-webhook-cache-ttl": "authentication.webhook.cacheTTL",
        "authorization-mode": "authorization.mode",
        "authorization-webhook-cache-authorized-ttl": "authorization.webhook.cacheAuthorizedTTL",
        "authorization-webhook-cache-unauthorized-ttl": "authorization.webhook.cacheUnauthorizedTTL",
        "client-ca-file": "authentication.x509.clientCAFile",
        "cpu-cfs-quota-period": "cpuCFSQuotaPeriod",
        "manifest-url": "staticPodURL",
        "minimum-image-ttl-duration": "imageMinimumGCAge",
        "pod-cidr": "podCIDR",
        "pod-manifest-path": "staticPodPath",
        "provider-id": "providerID",
        "reserved-cpus": "reservedSystemCPUs",
    },
    _KIND.BOOLEAN: {
        "anonymous-auth": "authentication.anonymous.enabled",
        "authentication-token-webhook": "authentication.webhook.enabled",
        "cgroups-per-qos": "cgroupsPerQOS",
        "cpu-cfs-quota": "cpuCFSQuota",
        "fail-cgroupv1": "failCgroupV1",
        "make-iptables-util-chains": "makeIPTablesUtilChains",
        "rotate-server-certificates": "serverTLSBootstrap",
    },
    _KIND.NUMBER: {
        "event-qps": "eventRecordQPS",
        "image-gc-high-threshold": "imageGCHighThresholdPercent",
        "image-gc-low-threshold": "imageGCLowThresholdPercent",
        "pod-max-pids": "podPidsLimit",
    },
    _KIND.LIST: {"cluster-dns": "clusterDNS"},
    _KIND.HEADERS: {"manifest-url-header": "staticPodURLHeader"},
}
"""Flags that set a field of the configuration, as if the file had it."""


_NAMED_AS_OPTIONS = (
    *("config", "config-dir", "root-dir", "kubeconfig", "bootstrap-kubeconfig", "cert-dir"),
    *("node-ip", "node-labels", "cloud-provider"),
)
OPTION_FLAGS = {
    **{name: name.replace("-", "_") for name in _NAMED_AS_OPTIONS},
    "hostname-override": "node_name",
}
"""Flags that set an option of the agent."""


_CADVISOR = "the agent reads cgroups itself, without cAdvisor"


_LOGGING = "the agent prints its events, whatever the verbosity"


_API_CLIENT = "the agent sends few requests, in JSON"


HARMLESS_FLAGS: Mapping[str, tuple[FlagKind, str]] = {
    **dict.fromkeys(
        (
            *("application-metrics-count-limit", "boot-id-file", "container-hints", "containerd"),
            *("containerd-namespace", "event-storage-age-limit", "event-storage-event-limit"),
            *("global-housekeeping-interval", "housekeeping-interval", "machine-id-file"),
            *("max-housekeeping-interval", "storage-driver-buffer-duration", "storage-driver-db"),
            *("storage-driver-host", "storage-driver-password", "storage-driver-table"),
            *("storage-driver-user",),
        ),
        (_KIND.TEXT, _CADVISOR),
    ),
    **dict.fromkeys(
        ("enable-load-reader", "log-cadvisor-usage", "storage-driver-secure"), (_KIND.BOOLEAN, _CADVISOR)
    ),
    **dict.fromkeys(
        (
            *("log-flush-frequency", "log-json-info-buffer-size", "log-text-info-buffer-size"),
            *("logging-format", "v", "vmodule"),
        ),
        (_KIND.TEXT, _LOGGING),
    ),
    **dict.fromkeys(("log-json-split-stream", "log-text-split-stream"), (_KIND.BOOLEAN, _LOGGING)),
    **dict.fromkeys(("kube-api-burst", "kube-api-qps"), (_KIND.NUMBER, _API_CLIENT)),
    "kube-api-content-type": (_KIND.TEXT, _API_CLIENT),
    "contention-profiling": (_KIND.BOOLEAN, "for profiles of Go programs"),
    "experimental-allocatable-ignore-eviction": (
        _KIND.BOOLEAN,
        "deprecated; eviction thresholds are subtracted",
    ),
    "experimental-mounter-path": (_KIND.TEXT, "deprecated; the agent mounts itself"),
    "hairpin-mode": (_KIND.TEXT, "the CNI plugin decides"),
    "max-open-files": (_KIND.NUMBER, "the agent raises its limit to what the machine allows"),
    **dict.fromkeys(
        ("maximum-dead-containers", "maximum-dead-containers-per-container"),
        (_KIND.NUMBER, "deprecated; the agent keeps one instance, as by default"),
    ),
    "minimum-container-ttl-duration": (
        _KIND.TEXT,
        "deprecated; the agent removes instances at once, as by default",
    ),
    **dict.fromkeys(
        ("registry-burst", "registry-qps"),
        (_KIND.NUMBER, "the agent pulls images one after the other, or as serializeImagePulls says"),
    ),
    "runtime-cgroups": (_KIND.TEXT, "for statistics of the runtime; the agent moves no other process"),
    "volume-plugin-dir": (_KIND.TEXT, "the agent has no FlexVolume plugins"),
    "volume-stats-agg-period": (_KIND.TEXT, "the agent measures volumes as often as eviction needs it"),
}
"""Flags that may be ignored, with the kind of their value and the reason."""


REFUSED_FLAGS: Mapping[str, tuple[FlagKind, str, str]] = {
    "exit-on-lock-contention": (_KIND.BOOLEAN, "false", "the agent locks its --root-dir itself"),
    "image-credential-provider-bin-dir": (_KIND.TEXT, "", "the agent runs no credential providers"),
    "image-credential-provider-config": (_KIND.TEXT, "", "the agent runs no credential providers"),
    "lock-file": (_KIND.TEXT, "", "the agent locks its --root-dir itself"),
    "protect-kernel-defaults": (_KIND.BOOLEAN, "false", "the agent does not check sysctls of the kernel"),
    "runonce": (_KIND.BOOLEAN, "false", "the agent runs until it is stopped"),
    "seccomp-default": (_KIND.BOOLEAN, "false", "containers without a profile run unconfined"),
}
"""Flags whose values other than the default are refused: kind, default and reason."""


def _camel_case(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(map(str.capitalize, others))


FLAG_PATHS = {
    **{name: _camel_case(name) for names in _OWN_NAMES.values() for name in names},
    **{name: path for fields in _FIELDS.values() for name, path in fields.items()},
}


FLAG_KINDS: Mapping[str, FlagKind] = {
    **{name: kind for kind, names in (*_OWN_NAMES.items(), *_FIELDS.items()) for name in names},
    **dict.fromkeys(OPTION_FLAGS, _KIND.TEXT),
    **{name: kind for name, (kind, _) in HARMLESS_FLAGS.items()},
    **{name: kind for name, (kind, *_) in REFUSED_FLAGS.items()},
    "version": _KIND.BOOLEAN,
}


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
        root_dir=(path("root_dir") or Path("/var/lib/kubelet")).absolute(),
        node_name=options.get("node_name") or None,
        socket=socket,
        kubelet_api=True,
        kubeconfig=options.get("kubeconfig") or None,
        node_labels=tuple(filter(None, [options.get("node_labels", "")])),
        node_ip=options.get("node_ip", ""),
        cloud_provider=options.get("cloud_provider", ""),
        cert_dir=path("cert_dir"),
        bootstrap_kubeconfig=options.get("bootstrap_kubeconfig") or None,
        is_kubelet=True,
        config_overrides=command_line.overrides,
    )


def flag_uses() -> dict[str, str]:
    """What the agent does with each flag of the kubelet, by its name."""
    uses = {name: f"used: {path}" for name, path in FLAG_PATHS.items()}
    uses |= dict.fromkeys(OPTION_FLAGS, "used") | {"version": "used"}
    uses |= {name: f"harmless: {reason}" for name, (_, reason) in HARMLESS_FLAGS.items()}
    uses |= {
        name: f"refused unless {default or 'empty'}: {reason}"
        for name, (_, default, reason) in REFUSED_FLAGS.items()
    }
    return dict(sorted(uses.items()))
