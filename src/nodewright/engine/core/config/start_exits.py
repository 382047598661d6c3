"""Every exit of a kubelet's start outside the validation of its configuration: predicted, or not judged.

Follows: v1.36, cmd/kubelet/app/server.go, run; pkg/kubelet/kubelet.go, NewMainKubelet, initializeModules,
    initializeRuntimeDependentModules; pkg/kubelet/cm/container_manager_linux.go, NewContainerManager, Start, setupNode.
"""

from typing import NamedTuple


class StartExit(NamedTuple):
    """An error with which the kubelet ends, in the order of its start."""

    where: str
    """The function in Kubernetes' source."""
    error: str
    """The kubelet's text; `...` stands for what varies."""
    not_judged: str = ""
    """What the exit depends on besides configuration and machine; empty: `lint` or `rehearse` predicts it."""


_FILES, _RUNTIME, _API, _KERNEL = (
    "files of the node",
    "the container runtime",
    "flags and API server",
    "the kernel",
)
START_EXITS = tuple(
    StartExit(where, error, not_judged)
    for where, exits in {
        "NewKubeletCommand": (
            ("failed to parse kubelet flag: ...", _API),
            ("failed to load kubelet config file, path: ...", ""),
            ("failed to load kubelet dropin file, path: ...", ""),
            (
                "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: ...",
                "",
            ),
            ("failed to validate kubelet flags: ...", _API),
            ("initialize logging: ...", _FILES),
            ("failed to construct kubelet dependencies: ...", _FILES),
        ),
        "run": (
            ("create health checker: ...", "the watchdog of systemd"),
            ("unable to acquire file lock on ...", _FILES),
            ("failed to initialize kubelet client: ...", _API),
            ("invalid kubeconfig: ...", _FILES),
            ("unable to generate self signed cert: ...", _FILES),
            ("reserved-cpus: ... is not a subset of online-cpus: ...", ""),
            ("--kube-reserved value failed to parse: ...", ""),
            ("--system-reserved value failed to parse: ...", ""),
            ("--qos-reserved value failed to parse: ...", ""),
            ("topology manager policy options ... require feature gates ... enabled", ""),
            ("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2", ""),
        ),
        "NewContainerManager": (
            ("failed to get mounted cgroup subsystems: ...", _KERNEL),
            (
                "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false",
                "",
            ),
            ("invalid configuration: could not read controllers for cgroup ...", "whether cgroupRoot exists"),
            ("unknown policy: ...", ""),
            ("unsupported on machines with more than ... NUMA Nodes", ""),
            ("[cpumanager] unable to determine reserved CPU resources for static policy", ""),
            (
                "the total amount ... of type ... is not equal to the value ... determined by Node Allocatable feature",
                "",
            ),
        ),
        "RunKubelet": (
            ("bad --node-ip ...", _API),
            ("runtime returned an unknown cgroup driver ...", _RUNTIME),
        ),
        "NewMainKubelet": (
            ("invalid sync frequency ...", ""),
            ("grace period must be specified for the soft eviction threshold ...", ""),
            ("failed to initialize container log manager: ...", ""),
            ("the sysctls ... are not known to be namespaced", ""),
            ("sysctl ... must have at most 253 characters and match regex ...", ""),
            ("failed to initialize image manager: ...", _FILES),
            ("failed to initialize certificate manager: ...", _FILES),
            ("unable to load client CA file ...", _FILES),
            ("could not checkpoint: ... (allocated and actuated pods)", ""),
            ("create user namespace manager: ...", _FILES),
        ),
        "initializeModules": (
            ("error creating root directory: ...", _FILES),
            ("failed to create directory ...", _FILES),
            ("failed to start OOM watcher: ...", _KERNEL),
        ),
        "Start of the container manager": (
            ("start dra manager error: ...", _FILES),
            ("start cpu manager error: ...", ""),
            ("start memory manager error: ...", ""),
            ("failed to get rootfs info: ...", _FILES),
            ("invalid Node Allocatable configuration. ...", ""),
        ),
        "setupNode": (
            ("system validation failed - ...", _KERNEL),
            ("invalid kernel flag: ... (with protectKernelDefaults)", _KERNEL),
            ("failed to initialize top level QOS containers: ...", _KERNEL),
            ("Failed to enforce ... Cgroup Limits on ...: ... cgroup is not configured properly", ""),
            ("Failed to enforce ... Cgroup Limits on ...: could not read controllers for cgroup ...", ""),
            ('system container cannot be root ("/")', ""),
        ),
    }.items()
    for error, not_judged in exits
)
