"""The kubelet's flags: their notation, and the fields of the configuration that they set.

Follows: v1.36, cmd/kubelet/app/options: options.go, globalflags.go, globalflags_linux.go;
    component-base/logs/api/v1/options.go; component-base/version/verflag/verflag.go.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from nodewright.model.errors import Fault


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
        *("container-runtime-endpoint", "cpu-manager-policy", "cpu-manager-reconcile-period", "hairpin-mode"),
        *("eviction-pressure-transition-period", "file-check-frequency", "healthz-bind-address"),
        *("http-check-frequency", "image-service-endpoint", "kube-reserved-cgroup"),
        *("kubelet-cgroups", "memory-manager-policy", "node-status-update-frequency", "resolv-conf"),
        *("runtime-request-timeout", "streaming-connection-idle-timeout", "sync-frequency"),
        *("system-cgroups", "system-reserved-cgroup", "tls-cert-file", "tls-min-version"),
        *("tls-private-key-file", "topology-manager-policy", "topology-manager-scope"),
        *("volume-plugin-dir", "volume-stats-agg-period"),
    ),
    _KIND.BOOLEAN: (
        *("enable-controller-attach-detach", "enable-debugging-handlers", "enable-server"),
        *("fail-swap-on", "kernel-memcg-notification", "local-storage-capacity-isolation"),
        *("protect-kernel-defaults", "register-node", "rotate-certificates", "seccomp-default"),
        *("serialize-image-pulls",),
    ),
    _KIND.NUMBER: (
        *("container-log-max-files", "event-burst", "eviction-max-pod-grace-period", "healthz-port"),
        *("max-open-files", "max-pods", "node-status-max-images", "oom-score-adj"),
        *("pods-per-core", "port", "read-only-port", "registry-burst"),
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
        "kube-api-content-type": "contentType",
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
        "contention-profiling": "enableContentionProfiling",
        "cpu-cfs-quota": "cpuCFSQuota",
        "fail-cgroupv1": "failCgroupV1",
        "make-iptables-util-chains": "makeIPTablesUtilChains",
        "rotate-server-certificates": "serverTLSBootstrap",
    },
    _KIND.NUMBER: {
        "event-qps": "eventRecordQPS",
        "image-gc-high-threshold": "imageGCHighThresholdPercent",
        "image-gc-low-threshold": "imageGCLowThresholdPercent",
        "kube-api-burst": "kubeAPIBurst",
        "kube-api-qps": "kubeAPIQPS",
        "pod-max-pids": "podPidsLimit",
        "registry-qps": "registryPullQPS",
    },
    _KIND.LIST: {"cluster-dns": "clusterDNS"},
    _KIND.HEADERS: {"manifest-url-header": "staticPodURLHeader"},
}
"""Flags that set a field of the configuration, as if the file had it."""


_OTHER_FLAGS: Mapping[FlagKind, tuple[str, ...]] = {
    _KIND.TEXT: (
        *("application-metrics-count-limit", "boot-id-file", "bootstrap-kubeconfig", "cert-dir"),
        *("cloud-provider", "config", "config-dir", "container-hints", "containerd", "containerd-namespace"),
        *("event-storage-age-limit", "event-storage-event-limit", "experimental-mounter-path"),
        *("global-housekeeping-interval", "hostname-override", "housekeeping-interval"),
        *("image-credential-provider-bin-dir", "image-credential-provider-config", "kubeconfig"),
        *("lock-file", "log-flush-frequency", "log-json-info-buffer-size", "log-text-info-buffer-size"),
        *("logging-format", "machine-id-file", "max-housekeeping-interval"),
        *("minimum-container-ttl-duration", "node-ip", "node-labels", "root-dir", "runtime-cgroups"),
        *("storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host"),
        *("storage-driver-password", "storage-driver-table", "storage-driver-user", "v", "vmodule"),
    ),
    _KIND.BOOLEAN: (
        *("enable-load-reader", "exit-on-lock-contention", "experimental-allocatable-ignore-eviction"),
        *("log-cadvisor-usage", "log-json-split-stream", "log-text-split-stream", "runonce"),
        *("storage-driver-secure", "version"),
    ),
    _KIND.NUMBER: ("maximum-dead-containers", "maximum-dead-containers-per-container"),
}
"""Flags that set no field of the configuration, by kind."""


def _camel_case(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(map(str.capitalize, others))


FLAG_PATHS = {
    **{name: _camel_case(name) for names in _OWN_NAMES.values() for name in names},
    **{name: path for fields in _FIELDS.values() for name, path in fields.items()},
}


FLAG_KINDS: Mapping[str, FlagKind] = {
    name: kind
    for flags in (_OWN_NAMES, _FIELDS, _OTHER_FLAGS)
    for kind, names in flags.items()
    for name in names
}


_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?P<separator>=?)(?P<value>.*)", re.DOTALL)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Flag(NamedTuple):
    """A flag as it is written."""

    name: str
    value: str


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


def written_flags(arguments: Sequence[str], faults: list[Fault]) -> Iterable[Flag]:
    """The flags with their values.

    Follows: Go, github.com/spf13/pflag: `--flag value`, `--flag=value`; a boolean takes `=` only; underscores are
        hyphens; a map that is repeated is merged, any other flag is replaced, and lists grow.
    """
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        match = _FLAG.fullmatch(argument)
        if match is None or (not argument.startswith("--") and match["name"] != "v"):
            faults.append(Fault(value=argument, rule="the kubelet takes flags only"))
            continue
        name = match["name"].replace("_", "-")
        if match["separator"]:
            yield Flag(name, match["value"])
        elif FLAG_KINDS.get(name) in (None, FlagKind.BOOLEAN):
            yield Flag(name, "true")
        elif remaining:
            yield Flag(name, remaining.pop(0))
        else:
            faults.append(Fault(source=f"--{name}", rule="flag needs an argument"))


def override(overrides: dict[str, Any], flag: Flag, faults: list[Fault]) -> None:
    """Adds the value of a flag of the kubelet; a fault if its notation is wrong."""
    kind = FLAG_KINDS[flag.name]
    try:
        value = parsed_value(flag.value, kind)
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


def parsed_value(text: str, kind: FlagKind) -> Any:
    """The value in a flag's notation, as a configuration file has it.

    Errors: ValueError.

    >>> parsed_value("memory.available<100Mi", FlagKind.THRESHOLDS)
    {'memory.available': '100Mi'}
    """
    return _PARSERS[kind](text)
