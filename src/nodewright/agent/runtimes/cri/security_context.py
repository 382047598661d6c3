"""The security contexts of sandboxes and containers as CRI messages.

Follows: v1.36, kubelet/kuberuntime/security_context.go and kuberuntime_sandbox.go.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nodewright.agent.rules.container_security import effective_setting, run_as_non_root_violation
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_spec_fields import PodSecurityContext

READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_APP_ARMOR_NAMES = {"RuntimeDefault": "runtime/default", "Unconfined": "unconfined"}


def sandbox_security(pod: Pod) -> cri.LinuxSandboxSecurityContext:
    """The security context of a pod's sandbox; its own processes run with the runtime's default restrictions."""
    pod_context = pod.spec.security_context
    security_context = cri.LinuxSandboxSecurityContext(
        privileged=any(
            _has_flag(container, "privileged")
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ),
        seccomp=cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault),
        namespace_options=namespaces(pod),
    )
    if pod_context is not None:
        security_context.supplemental_groups.extend(_supplemental_groups(pod_context))
        security_context.supplemental_groups_policy = _supplemental_groups_policy(pod_context)
        if pod_context.run_as_user is not None:
            security_context.run_as_user.value = pod_context.run_as_user
        if pod_context.run_as_group is not None:
            security_context.run_as_group.value = pod_context.run_as_group
        if pod_context.se_linux_options:
            security_context.selinux_options.CopyFrom(cri.SELinuxOption(**pod_context.se_linux_options))
    return security_context


def container_security(
    pod: Pod,
    container: Container,
    image_user: tuple[int | None, str],
    seccomp_root: str,
    *,
    target_id: str = "",
) -> cri.LinuxContainerSecurityContext:
    """The security context of a container: its own settings, then the pod's, then the image's.

    ``target_id``: the container whose processes it sees.

    Errors: HostError where it must not run as root and would, or may.
    """
    container_context, pod_context = (
        container.security_context or {},
        pod.spec.security_context or PodSecurityContext(),
    )
    uid, gid = effective_setting(pod, container, "runAsUser"), effective_setting(pod, container, "runAsGroup")
    violation = run_as_non_root_violation(pod, container, image_user)
    if violation:
        raise HostError("create container", container.name, violation)
    is_unmasked = container_context.get("procMount") == "Unmasked"
    security_context = cri.LinuxContainerSecurityContext(
        privileged=_has_flag(container, "privileged"),
        readonly_rootfs=_has_flag(container, "readOnlyRootFilesystem"),
        no_new_privs=container_context.get("allowPrivilegeEscalation") is False,
        namespace_options=namespaces(pod, target_id),
        supplemental_groups=_supplemental_groups(pod_context),
        supplemental_groups_policy=_supplemental_groups_policy(pod_context),
        masked_paths=() if is_unmasked else masked_paths(),
        readonly_paths=() if is_unmasked else READONLY_PATHS,
        seccomp=_seccomp_profile(effective_setting(pod, container, "seccompProfile"), seccomp_root),
    )
    _set_user(security_context, (uid, gid), image_user)
    capabilities = container_context.get("capabilities")
    if capabilities is not None:
        security_context.capabilities.add_capabilities.extend(capabilities.get("add") or ())
        security_context.capabilities.drop_capabilities.extend(capabilities.get("drop") or ())
    labels = effective_setting(pod, container, "seLinuxOptions")
    if labels:
        security_context.selinux_options.CopyFrom(cri.SELinuxOption(**labels))
    _set_app_armor_profile(security_context, effective_setting(pod, container, "appArmorProfile"))
    return security_context


def _set_user(
    security_context: cri.LinuxContainerSecurityContext,
    ids: tuple[int | None, int | None],
    image_user: tuple[int | None, str],
) -> None:
    """Sets user and group; without them those of the image."""
    uid = image_user[0] if ids[0] is None else ids[0]
    if uid is not None:
        security_context.run_as_user.value = uid
    else:
        security_context.run_as_username = image_user[1]
    if ids[1] is not None:
        security_context.run_as_group.value = ids[1]


def namespaces(pod: Pod, target_id: str = "") -> cri.NamespaceOption:
    """The namespaces that the pod has for itself, and those that it shares with the host.

    Follows: v1.36, kubelet/kuberuntime/util/util.go, NamespacesForPod.
    Errors:  HostError: user namespaces are not supported.
    """
    spec = pod.spec
    if spec.host_users is False:
        raise HostError(
            "run pod", pod.full_name, "hostUsers: false needs user namespaces, which are not supported"
        )
    pid = cri.POD if spec.share_process_namespace else cri.CONTAINER
    is_targeted = bool(target_id) and not spec.host_pid and not spec.share_process_namespace
    if is_targeted:
        pid = cri.TARGET
    return cri.NamespaceOption(
        target_id=target_id if is_targeted else "",
        network=cri.NODE if spec.host_network else cri.POD,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
        pid=cri.NODE if spec.host_pid else pid,
    )


@cache
def masked_paths() -> tuple[str, ...]:
    """The paths of `/proc` and `/sys` that are masked in containers, unless procMount is Unmasked."""
    throttles = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"))
    return (*MASKED_PATHS, *map(str, throttles))


def _seccomp_profile(profile: Mapping[str, Any] | None, root: str) -> cri.SecurityProfile:
    """The seccomp profile; without one, Unconfined."""
    security_profile = cri.SecurityProfile
    match (profile or {}).get("type", "Unconfined"):
        case "RuntimeDefault":
            return security_profile(profile_type=security_profile.RuntimeDefault)
        case "Localhost":
            name = (profile or {}).get("localhostProfile", "")
            return security_profile(profile_type=security_profile.Localhost, localhost_ref=f"{root}/{name}")
        case _:
            return security_profile(profile_type=security_profile.Unconfined)


def _set_app_armor_profile(
    security_context: cri.LinuxContainerSecurityContext, profile: Mapping[str, Any] | None
) -> None:
    """Sets the AppArmor profile, in CRI's current and in its deprecated field."""
    if profile is None:
        return
    kind, name = profile.get("type", ""), profile.get("localhostProfile", "")
    profiles = cri.SecurityProfile
    kinds = {"RuntimeDefault": profiles.RuntimeDefault, "Unconfined": profiles.Unconfined}
    security_context.apparmor.profile_type = kinds.get(kind, profiles.Localhost)
    if kind == "Localhost":
        security_context.apparmor.localhost_ref = name
    security_context.apparmor_profile = _APP_ARMOR_NAMES.get(kind, f"localhost/{name}")


def _supplemental_groups(pod_context: PodSecurityContext) -> tuple[int, ...]:
    own = () if pod_context.fs_group is None else (pod_context.fs_group,)
    return (*own, *pod_context.supplemental_groups)


def _supplemental_groups_policy(pod_context: PodSecurityContext) -> cri.SupplementalGroupsPolicy:
    return cri.Strict if pod_context.supplemental_groups_policy == "Strict" else cri.Merge


def _has_flag(container: Container, name: str) -> bool:
    return bool((container.security_context or {}).get(name))
