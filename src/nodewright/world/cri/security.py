"""What a container may do, in the runtime's terms.

Follows: v1.36, kubelet/kuberuntime/security_context.go and kuberuntime_sandbox.go.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nodewright.core.security import root_refusal, setting
from nodewright.model.objects import Container, Pod
from nodewright.model.pod_settings import PodSecurityContext
from nodewright.world.cri import api_pb2 as cri
from nodewright.world.errors import WorldError

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
    """The rights of a pod's sandbox; its own processes are held as tightly as the runtime can."""
    of_pod = pod.spec.security_context
    found = cri.LinuxSandboxSecurityContext(
        privileged=any(_is(one, "privileged") for one in (*pod.spec.init_containers, *pod.spec.containers)),
        seccomp=cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault),
        namespace_options=namespaces(pod),
    )
    if of_pod is not None:
        found.supplemental_groups.extend(_groups(of_pod))
        found.supplemental_groups_policy = _groups_policy(of_pod)
        if of_pod.run_as_user is not None:
            found.run_as_user.value = of_pod.run_as_user
        if of_pod.run_as_group is not None:
            found.run_as_group.value = of_pod.run_as_group
        if of_pod.se_linux_options:
            found.selinux_options.CopyFrom(cri.SELinuxOption(**of_pod.se_linux_options))
    return found


def container_security(
    pod: Pod, container: Container, image_user: tuple[int | None, str], seccomp_root: str
) -> cri.LinuxContainerSecurityContext:
    """The rights of a container: its own settings, then the pod's, then the image's.

    Errors: WorldError where it must not run as root and would, or may.
    """
    own, of_pod = container.security_context or {}, pod.spec.security_context or PodSecurityContext()
    uid, gid = setting(pod, container, "runAsUser"), setting(pod, container, "runAsGroup")
    refusal = root_refusal(pod, container, image_user)
    if refusal:
        raise WorldError("create container", container.name, refusal)
    is_unmasked = own.get("procMount") == "Unmasked"
    found = cri.LinuxContainerSecurityContext(
        privileged=_is(container, "privileged"),
        readonly_rootfs=_is(container, "readOnlyRootFilesystem"),
        no_new_privs=own.get("allowPrivilegeEscalation") is False,
        namespace_options=namespaces(pod),
        supplemental_groups=_groups(of_pod),
        supplemental_groups_policy=_groups_policy(of_pod),
        masked_paths=() if is_unmasked else masked_paths(),
        readonly_paths=() if is_unmasked else READONLY_PATHS,
        seccomp=_profile(setting(pod, container, "seccompProfile"), seccomp_root),
    )
    if uid is not None:
        found.run_as_user.value = uid
    elif image_user[0] is not None:
        found.run_as_user.value = image_user[0]
    else:
        found.run_as_username = image_user[1]
    if gid is not None:
        found.run_as_group.value = gid
    capabilities = own.get("capabilities")
    if capabilities is not None:
        found.capabilities.add_capabilities.extend(capabilities.get("add") or ())
        found.capabilities.drop_capabilities.extend(capabilities.get("drop") or ())
    labels = setting(pod, container, "seLinuxOptions")
    if labels:
        found.selinux_options.CopyFrom(cri.SELinuxOption(**labels))
    _armour(found, setting(pod, container, "appArmorProfile"))
    return found


def namespaces(pod: Pod) -> cri.NamespaceOption:
    """What the pod has to itself, and what it shares with the machine.

    Follows: v1.36, kubelet/kuberuntime/util/util.go, NamespacesForPod.
    Errors:  WorldError: no user namespaces.
    """
    spec = pod.spec
    if spec.host_users is False:
        raise WorldError(
            "run pod", pod.full_name, "hostUsers: false needs user namespaces, which are not made"
        )
    pid = cri.POD if spec.share_process_namespace else cri.CONTAINER
    return cri.NamespaceOption(
        network=cri.NODE if spec.host_network else cri.POD,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
        pid=cri.NODE if spec.host_pid else pid,
    )


@cache
def masked_paths() -> tuple[str, ...]:
    """What no container sees of `/proc` and `/sys`, unless it asks to."""
    throttles = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"))
    return (*MASKED_PATHS, *map(str, throttles))


def _profile(wanted: Mapping[str, Any] | None, root: str) -> cri.SecurityProfile:
    """Which system calls are let through: all of them where nobody says anything."""
    profiles = cri.SecurityProfile
    match (wanted or {}).get("type", "Unconfined"):
        case "RuntimeDefault":
            return profiles(profile_type=profiles.RuntimeDefault)
        case "Localhost":
            name = (wanted or {}).get("localhostProfile", "")
            return profiles(profile_type=profiles.Localhost, localhost_ref=f"{root}/{name}")
        case _:
            return profiles(profile_type=profiles.Unconfined)


def _armour(found: cri.LinuxContainerSecurityContext, wanted: Mapping[str, Any] | None) -> None:
    """AppArmor's profile, in the new way and in the old one."""
    if wanted is None:
        return
    kind, name = wanted.get("type", ""), wanted.get("localhostProfile", "")
    profiles = cri.SecurityProfile
    kinds = {"RuntimeDefault": profiles.RuntimeDefault, "Unconfined": profiles.Unconfined}
    found.apparmor.profile_type = kinds.get(kind, profiles.Localhost)
    if kind == "Localhost":
        found.apparmor.localhost_ref = name
    found.apparmor_profile = _APP_ARMOR_NAMES.get(kind, f"localhost/{name}")


def _groups(of_pod: PodSecurityContext) -> tuple[int, ...]:
    own = () if of_pod.fs_group is None else (of_pod.fs_group,)
    return (*own, *of_pod.supplemental_groups)


def _groups_policy(of_pod: PodSecurityContext) -> cri.SupplementalGroupsPolicy:
    return cri.Strict if of_pod.supplemental_groups_policy == "Strict" else cri.Merge


def _is(container: Container, name: str) -> bool:
    return bool((container.security_context or {}).get(name))
