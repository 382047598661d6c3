"""Pod features that the kubelet may refuse: sysctls, AppArmor profiles, pod-level resources, node-declared features."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.model.kubernetes.name_validation import dotted_sysctl, sysctl_namespace
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import (
    AppArmorNotEnabled,
    NodeFeaturesMissing,
    PodLevelResourcesDisabled,
    SysctlForbidden,
)

_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"

SAFE_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
)
"""Sysctls that every pod may set on Linux 4.15 or newer."""


class SysctlAllowlist(msgspec.Struct, frozen=True):
    """The sysctls that pods may set, each with its kernel namespace."""

    exact: tuple[tuple[str, str], ...]
    prefixes: tuple[tuple[str, str], ...]
    invalid_patterns: tuple[str, ...] = ()
    """Patterns that belong to no namespace: the kubelet does not start with them."""

    @classmethod
    def of(cls, unsafe: Iterable[str] = ()) -> "SysctlAllowlist":
        """The safe sysctls and the patterns of `allowedUnsafeSysctls`.

        Follows: v1.36, pkg/kubelet/sysctl/{allowlist,safe_sysctls}.go, NewAllowlist.
        Departs: assumes Linux 4.15 or newer, where every safe sysctl is namespaced.
        """
        exact, prefixes, unknown = [], [], []
        for pattern in (*SAFE_SYSCTLS, *unsafe):
            name, star, _ = dotted_sysctl(pattern).partition("*")
            namespace = sysctl_namespace(name)
            if not namespace:
                unknown.append(name)
            elif star:
                prefixes.append((name, namespace))
            else:
                exact.append((name, namespace))
        return cls(tuple(exact), tuple(prefixes), tuple(unknown))

    def namespace(self, sysctl: str) -> str | None:
        """The kernel namespace of a sysctl that is on the list, None if it is not."""
        for name, namespace in self.exact:
            if name == sysctl:
                return namespace
        for prefix, namespace in self.prefixes:
            if sysctl.startswith(prefix):
                return namespace
        return None


def forbidden_sysctl(pod: Pod, allowlist: SysctlAllowlist) -> SysctlForbidden | None:
    """The first sysctl of the pod that it may not set.

    Follows: v1.36, pkg/kubelet/sysctl/allowlist.go, patternAllowlist.Admit.
    """
    context = pod.spec.security_context
    for setting in context.sysctls if context else ():
        sysctl = dotted_sysctl(setting.name)
        namespace = allowlist.namespace(sysctl)
        if namespace is None:
            return SysctlForbidden(sysctl=sysctl)
        if (namespace == "IPC" and pod.spec.host_ipc) or (namespace == "Net" and pod.spec.host_network):
            return SysctlForbidden(sysctl=sysctl, host_namespace=namespace)
    return None


def app_armor_refusal(pod: Pod, *, has_app_armor: bool | None) -> AppArmorNotEnabled | None:
    """The reason to refuse a pod with an AppArmor profile where the kernel enforces none; None: it does, or may do so.

    A pod that has run before is not refused.

    Follows: v1.36, pkg/kubelet/lifecycle/handlers.go, appArmorAdmitHandler.Admit; pkg/security/apparmor/validate.go.
    """
    if has_app_armor is not False or pod.status.phase not in ("", "Pending"):
        return None
    return AppArmorNotEnabled() if has_app_armor_profile(pod) else None


def has_app_armor_profile(pod: Pod) -> bool:
    """Whether the pod needs AppArmor: by its fields or annotations.

    Follows: v1.36, pkg/security/apparmor/validate.go, isRequired.
    Departs: any such annotation counts; the kubelet takes the first in the random order of a map.
    """
    for container in pod.spec.all_containers:
        context = container.security_context
        if context and _is_confined(context.get("appArmorProfile")):
            return True
    pod_context = pod.spec.security_context
    if pod_context is not None and _is_confined(pod_context.app_armor_profile):
        return True
    for key, value in pod.metadata.annotations.items():
        if key.startswith(_APP_ARMOR_ANNOTATION) and value != "unconfined":
            return True
    return False


def _is_confined(profile: Mapping[str, Any] | None) -> bool:
    return profile is not None and bool(profile) and profile.get("type") != "Unconfined"


def disabled_pod_level_resources(pod: Pod, *, gate: bool) -> PodLevelResourcesDisabled | None:
    """The reason to refuse a pod with pod-level resources where the gate PodLevelResources is off.

    Follows: v1.36, pkg/kubelet/lifecycle/features_linux.go, isPodLevelResourcesSupported.
    """
    return PodLevelResourcesDisabled() if not gate and pod_level_resources_set(pod) else None


def missing_features(pod: Pod, declared: Iterable[str]) -> NodeFeaturesMissing | None:
    """The features that the pod needs and the node does not declare.

    Follows: v1.36, component-helpers/nodedeclaredfeatures/features, InferForScheduling of those that have one.
    """
    spec = pod.spec
    needed = []
    for container in (*spec.containers, *spec.init_containers):
        rules = container.restart_policy_rules
        if rules and any(rule.get("action") == "RestartAllContainers" for rule in rules):
            needed.append("RestartAllContainersOnContainerExits")
            break
    if spec.host_network and spec.host_users is False:
        needed.append("UserNamespacesHostNetworkSupport")
    if not needed:
        return None
    available = frozenset(declared)
    missing = tuple(sorted(name for name in needed if name not in available))
    return NodeFeaturesMissing(features=missing) if missing else None
