"""The flags of the kubelet's command line, and what the agent does with each of them.

Every flag has one of three uses: it sets a field of the configuration or an option of the agent; it is harmless, so that
it is listed once and ignored; or it is refused, because pods would run otherwise than it says.

Follows: v1.36, cmd/kubelet/app/options: options.go, globalflags.go, globalflags_linux.go;
    component-base/logs/api/v1/options.go; component-base/version/verflag/verflag.go.
"""

from collections.abc import Mapping
from enum import StrEnum


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
