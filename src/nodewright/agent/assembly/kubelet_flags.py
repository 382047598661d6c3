"""A command line of the kubelet as options of the agent and fields of the configuration.

Every flag has one of three uses: it sets a field of the configuration or an option of the agent; it is harmless, so that
it is listed once and ignored; or it is refused, because pods would run otherwise than it says.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.documents.profiles.kubelet_flags import FLAG_KINDS, FLAG_PATHS, override, written_flags
from nodewright.model.errors import Fault, InputError
from nodewright.model.releases.release_changes import unknown_flags
from nodewright.model.releases.release_table import NEWEST

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


HARMLESS_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "housekeeping-interval",
            "max-housekeeping-interval",
        ),
        _CADVISOR,
    ),
    **dict.fromkeys(
        (
            *("log-flush-frequency", "log-json-info-buffer-size", "log-text-info-buffer-size"),
            *("logging-format", "v", "vmodule"),
        ),
        _LOGGING,
    ),
    **dict.fromkeys(("log-json-split-stream", "log-text-split-stream"), _LOGGING),
    **dict.fromkeys(("kube-api-burst", "kube-api-qps"), _API_CLIENT),
    "kube-api-content-type": _API_CLIENT,
    "contention-profiling": "for profiles of Go programs",
    "experimental-allocatable-ignore-eviction": "deprecated; eviction thresholds are subtracted",
    "experimental-mounter-path": "deprecated; the agent mounts itself",
    "hairpin-mode": "the CNI plugin decides",
    "max-open-files": "the agent raises its limit to what the machine allows",
    **dict.fromkeys(
        ("maximum-dead-containers", "maximum-dead-containers-per-container"),
        "deprecated; the agent keeps one instance, as by default",
    ),
    "minimum-container-ttl-duration": "deprecated; the agent removes instances at once, as by default",
    **dict.fromkeys(
        ("registry-burst", "registry-qps"),
        "the agent pulls images one after the other, or as serializeImagePulls says",
    ),
    "runtime-cgroups": "for statistics of the runtime; the agent moves no other process",
    "volume-plugin-dir": "the agent has no FlexVolume plugins",
    "volume-stats-agg-period": "the agent measures volumes as often as eviction needs it",
}
"""Flags that may be ignored; the reason."""


REFUSED_FLAGS: Mapping[str, tuple[str, str]] = {
    "exit-on-lock-contention": ("false", "the agent locks its --root-dir itself"),
    "image-credential-provider-bin-dir": ("", "the agent runs no credential providers"),
    "image-credential-provider-config": ("", "the agent runs no credential providers"),
    "lock-file": ("", "the agent locks its --root-dir itself"),
    "protect-kernel-defaults": ("false", "the agent does not check sysctls of the kernel"),
    "runonce": ("false", "the agent runs until it is stopped"),
    "seccomp-default": ("false", "containers without a profile run unconfined"),
}
"""Flags whose values other than the default are refused: default and reason."""


class KubeletCommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line of the kubelet asks for."""

    options: Mapping[str, str]
    """Options of the agent, by their name there."""
    overrides: tuple[tuple[str, Any], ...] = ()
    """Fields of the configuration by their path, with the values of flags, which win over the file."""
    ignored: tuple[str, ...] = ()
    """A line for each ignored flag."""
    is_version_query: bool = False


def parse_kubelet_flags(arguments: Sequence[str]) -> KubeletCommandLine:
    """What the arguments ask for.

    Errors:  InputError with all faults.
    """
    options, overrides = dict[str, str](), dict[str, Any]()
    ignored, faults = dict[str, str](), list[Fault]()
    is_version_query = False
    for flag in written_flags(arguments, faults):
        name, value = flag
        if name == "version":
            is_version_query = value != "false"
        elif name not in FLAG_KINDS:
            faults.append(Fault(source=f"--{name}", rule=f"no flag of the kubelet {NEWEST.name}"))
        elif gone := unknown_flags([name], NEWEST.name):
            rule = f"no flag of the kubelet since {gone[0].since}: {gone[0].remedy}"
            faults.append(Fault(source=f"--{name}", rule=rule))
        elif name in OPTION_FLAGS:
            option = OPTION_FLAGS[name]
            options[option] = (
                f"{options[option]},{value}" if name == "node-labels" and option in options else value
            )
        elif name in HARMLESS_FLAGS:
            ignored[name] = f"--{name}: ignored: {HARMLESS_FLAGS[name]}"
        elif name in REFUSED_FLAGS:
            if value != REFUSED_FLAGS[name][0]:
                faults.append(Fault(source=f"--{name}", value=value, rule=REFUSED_FLAGS[name][1]))
        else:
            override(overrides, flag, faults)
    if faults:
        raise InputError(faults)
    return KubeletCommandLine(
        options=options,
        overrides=tuple((FLAG_PATHS[name], value) for name, value in overrides.items()),
        ignored=tuple(ignored.values()),
        is_version_query=is_version_query,
    )


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
    uses |= {name: f"harmless: {reason}" for name, reason in HARMLESS_FLAGS.items()}
    uses |= {
        name: f"refused unless {default or 'empty'}: {reason}"
        for name, (default, reason) in REFUSED_FLAGS.items()
    }
    return dict(sorted(uses.items()))
