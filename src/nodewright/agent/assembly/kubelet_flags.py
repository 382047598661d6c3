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


_FIELDS: Mapping[FlagKind, Mapping[str, str]] = {
    _KIND.TEXT: {
        "address": "address",
        "authentication-token-webhook-cache-ttl": "authentication.webhook.cacheTTL",
        "authorization-mode": "authorization.mode",
        "authorization-webhook-cache-authorized-ttl": "authorization.webhook.cacheAuthorizedTTL",
        "authorization-webhook-cache-unauthorized-ttl": "authorization.webhook.cacheUnauthorizedTTL",
        "cgroup-driver": "cgroupDriver",
        "cgroup-root": "cgroupRoot",
        "client-ca-file": "authentication.x509.clientCAFile",
        "cluster-domain": "clusterDomain",
        "container-log-max-size": "containerLogMaxSize",
        "container-runtime-endpoint": "containerRuntimeEndpoint",
        "cpu-cfs-quota-period": "cpuCFSQuotaPeriod",
        "cpu-manager-policy": "cpuManagerPolicy",
        "cpu-manager-reconcile-period": "cpuManagerReconcilePeriod",
        "eviction-pressure-transition-period": "evictionPressureTransitionPeriod",
        "file-check-frequency": "fileCheckFrequency",
        "healthz-bind-address": "healthzBindAddress",
        "http-check-frequency": "httpCheckFrequency",
        "image-service-endpoint": "imageServiceEndpoint",
        "kube-reserved-cgroup": "kubeReservedCgroup",
        "kubelet-cgroups": "kubeletCgroups",
        "manifest-url": "staticPodURL",
        "memory-manager-policy": "memoryManagerPolicy",
        "minimum-image-ttl-duration": "imageMinimumGCAge",
        "node-status-update-frequency": "nodeStatusUpdateFrequency",
        "pod-cidr": "podCIDR",
        "pod-manifest-path": "staticPodPath",
        "provider-id": "providerID",
        "reserved-cpus": "reservedSystemCPUs",
        "resolv-conf": "resolvConf",
        "runtime-request-timeout": "runtimeRequestTimeout",
        "streaming-connection-idle-timeout": "streamingConnectionIdleTimeout",
        "sync-frequency": "syncFrequency",
        "system-cgroups": "systemCgroups",
        "system-reserved-cgroup": "systemReservedCgroup",
        "tls-cert-file": "tlsCertFile",
        "tls-min-version": "tlsMinVersion",
        "tls-private-key-file": "tlsPrivateKeyFile",
        "topology-manager-policy": "topologyManagerPolicy",
        "topology-manager-scope": "topologyManagerScope",
    },
    _KIND.BOOLEAN: {
        "anonymous-auth": "authentication.anonymous.enabled",
        "authentication-token-webhook": "authentication.webhook.enabled",
        "cgroups-per-qos": "cgroupsPerQOS",
        "cpu-cfs-quota": "cpuCFSQuota",
        "enable-controller-attach-detach": "enableControllerAttachDetach",
        "enable-debugging-handlers": "enableDebuggingHandlers",
        "enable-server": "enableServer",
        "fail-cgroupv1": "failCgroupV1",
        "fail-swap-on": "failSwapOn",
        "kernel-memcg-notification": "kernelMemcgNotification",
        "local-storage-capacity-isolation": "localStorageCapacityIsolation",
        "make-iptables-util-chains": "makeIPTablesUtilChains",
        "register-node": "registerNode",
        "rotate-certificates": "rotateCertificates",
        "rotate-server-certificates": "serverTLSBootstrap",
        "serialize-image-pulls": "serializeImagePulls",
    },
    _KIND.NUMBER: {
        "container-log-max-files": "containerLogMaxFiles",
        "event-burst": "eventBurst",
        "event-qps": "eventRecordQPS",
        "eviction-max-pod-grace-period": "evictionMaxPodGracePeriod",
        "healthz-port": "healthzPort",
        "image-gc-high-threshold": "imageGCHighThresholdPercent",
        "image-gc-low-threshold": "imageGCLowThresholdPercent",
        "max-pods": "maxPods",
        "node-status-max-images": "nodeStatusMaxImages",
        "oom-score-adj": "oomScoreAdj",
        "pod-max-pids": "podPidsLimit",
        "pods-per-core": "podsPerCore",
        "port": "port",
        "read-only-port": "readOnlyPort",
    },
    _KIND.LIST: {
        "allowed-unsafe-sysctls": "allowedUnsafeSysctls",
        "cluster-dns": "clusterDNS",
        "enforce-node-allocatable": "enforceNodeAllocatable",
        "tls-cipher-suites": "tlsCipherSuites",
    },
    _KIND.MAP: {
        "cpu-manager-policy-options": "cpuManagerPolicyOptions",
        "eviction-minimum-reclaim": "evictionMinimumReclaim",
        "eviction-soft-grace-period": "evictionSoftGracePeriod",
        "kube-reserved": "kubeReserved",
        "qos-reserved": "qosReserved",
        "system-reserved": "systemReserved",
        "topology-manager-policy-options": "topologyManagerPolicyOptions",
    },
    _KIND.BOOLEAN_MAP: {"feature-gates": "featureGates"},
    _KIND.THRESHOLDS: {"eviction-hard": "evictionHard", "eviction-soft": "evictionSoft"},
    _KIND.HEADERS: {"manifest-url-header": "staticPodURLHeader"},
    _KIND.RESERVATIONS: {"reserved-memory": "reservedMemory"},
    _KIND.TAINTS: {"register-with-taints": "registerWithTaints"},
}
"""Flags that set a field of the configuration, as if the file had it."""


OPTION_FLAGS = {
    "config": "config",
    "config-dir": "config_dir",
    "root-dir": "root_dir",
    "kubeconfig": "kubeconfig",
    "bootstrap-kubeconfig": "bootstrap_kubeconfig",
    "cert-dir": "cert_dir",
    "hostname-override": "node_name",
    "node-ip": "node_ip",
    "node-labels": "node_labels",
    "cloud-provider": "cloud_provider",
}
"""Flags that set an option of the agent."""


_CADVISOR = "the agent reads cgroups itself, without cAdvisor"


_LOGGING = "the agent prints its events, whatever the verbosity"


_API_CLIENT = "the agent sends few requests, in JSON"


HARMLESS_FLAGS: Mapping[str, tuple[FlagKind, str]] = {
    "application-metrics-count-limit": (_KIND.TEXT, _CADVISOR),
    "boot-id-file": (_KIND.TEXT, _CADVISOR),
    "container-hints": (_KIND.TEXT, _CADVISOR),
    "containerd": (_KIND.TEXT, _CADVISOR),
    "containerd-namespace": (_KIND.TEXT, _CADVISOR),
    "enable-load-reader": (_KIND.BOOLEAN, _CADVISOR),
    "event-storage-age-limit": (_KIND.TEXT, _CADVISOR),
    "event-storage-event-limit": (_KIND.TEXT, _CADVISOR),
    "global-housekeeping-interval": (_KIND.TEXT, _CADVISOR),
    "housekeeping-interval": (_KIND.TEXT, _CADVISOR),
    "log-cadvisor-usage": (_KIND.BOOLEAN, _CADVISOR),
    "machine-id-file": (_KIND.TEXT, _CADVISOR),
    "max-housekeeping-interval": (_KIND.TEXT, _CADVISOR),
    "storage-driver-buffer-duration": (_KIND.TEXT, _CADVISOR),
    "storage-driver-db": (_KIND.TEXT, _CADVISOR),
    "storage-driver-host": (_KIND.TEXT, _CADVISOR),
    "storage-driver-password": (_KIND.TEXT, _CADVISOR),
    "storage-driver-secure": (_KIND.BOOLEAN, _CADVISOR),
    "storage-driver-table": (_KIND.TEXT, _CADVISOR),
    "storage-driver-user": (_KIND.TEXT, _CADVISOR),
    "log-flush-frequency": (_KIND.TEXT, _LOGGING),
    "log-json-info-buffer-size": (_KIND.TEXT, _LOGGING),
    "log-json-split-stream": (_KIND.BOOLEAN, _LOGGING),
    "log-text-info-buffer-size": (_KIND.TEXT, _LOGGING),
    "log-text-split-stream": (_KIND.BOOLEAN, _LOGGING),
    "logging-format": (_KIND.TEXT, _LOGGING),
    "v": (_KIND.TEXT, _LOGGING),
    "vmodule": (_KIND.TEXT, _LOGGING),
    "kube-api-burst": (_KIND.NUMBER, _API_CLIENT),
    "kube-api-content-type": (_KIND.TEXT, _API_CLIENT),
    "kube-api-qps": (_KIND.NUMBER, _API_CLIENT),
    "contention-profiling": (_KIND.BOOLEAN, "for profiles of Go programs"),
    "experimental-allocatable-ignore-eviction": (
        _KIND.BOOLEAN,
        "deprecated; eviction thresholds are subtracted",
    ),
    "experimental-mounter-path": (_KIND.TEXT, "deprecated; the agent mounts itself"),
    "hairpin-mode": (_KIND.TEXT, "the CNI plugin decides"),
    "max-open-files": (_KIND.NUMBER, "the agent raises its limit to what the machine allows"),
    "maximum-dead-containers": (_KIND.NUMBER, "deprecated; the agent keeps one instance, as by default"),
    "maximum-dead-containers-per-container": (
        _KIND.NUMBER,
        "deprecated; the agent keeps one instance, as by default",
    ),
    "minimum-container-ttl-duration": (
        _KIND.TEXT,
        "deprecated; the agent removes instances at once, as by default",
    ),
    "registry-burst": (
        _KIND.NUMBER,
        "the agent pulls images one after the other, or as serializeImagePulls says",
    ),
    "registry-qps": (
        _KIND.NUMBER,
        "the agent pulls images one after the other, or as serializeImagePulls says",
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


FLAG_PATHS = {name: path for fields in _FIELDS.values() for name, path in fields.items()}


FLAG_KINDS: Mapping[str, FlagKind] = {
    **{name: kind for kind, fields in _FIELDS.items() for name in fields},
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
