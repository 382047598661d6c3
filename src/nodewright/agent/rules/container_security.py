"""Security context of a container: the run-as-non-root check, capabilities, settings that a plain process ignores."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_spec_fields import PodSecurityContext

ROOT, MAX_USER_ID = 0, 2**31 - 1
CAPABILITIES = [
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    *("SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW"),
    *("IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE"),
    *("SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME"),
    *("SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ"),
    *("PERFMON", "BPF", "CHECKPOINT_RESTORE"),
]
"""In the kernel's order: the index is the capability's number."""

_ALL = frozenset(range(len(CAPABILITIES)))
_FILES = "the process uses the host's file system"
_MACHINE = "it would change the host's settings"
_PROFILES = "the process keeps the profiles of the host"


def run_as_non_root_violation(pod: Pod, container: Container, image_user: tuple[int | None, str]) -> str:
    """The kubelet's error for a container that breaks `runAsNonRoot`; empty if it may run.

    ``image_user`` is the user of the image, which applies where the pod sets none: a number, or a name, which
    cannot be verified.
    Follows: v1.36, kubelet/kuberuntime/security_context_others.go, verifyRunAsNonRoot.
    """
    if not effective_setting(pod, container, "runAsNonRoot"):
        return ""
    metadata, uid, (number, name) = pod.metadata, effective_setting(pod, container, "runAsUser"), image_user
    where = f'(pod: "{metadata.name}_{metadata.namespace}({pod.uid})", container: {container.name})'
    if uid is not None:
        return f"container's runAsUser breaks non-root policy {where}" if uid == ROOT else ""
    if number is None:
        why = f"image has non-numeric user ({name}), cannot verify user is non-root"
    elif number == ROOT:
        why = "image will run as root"
    elif not 0 < number <= MAX_USER_ID:
        rule = f"must be between 0 and {MAX_USER_ID}, inclusive"
        why = f"image has an invalid user id ({number}). (Must be 1-({MAX_USER_ID})): {rule}"
    else:
        return ""
    return f"container has runAsNonRoot and {why} {where}"


_POD_FIELDS = {
    "runAsNonRoot": "run_as_non_root",
    "runAsUser": "run_as_user",
    "runAsGroup": "run_as_group",
    "seLinuxOptions": "se_linux_options",
    "seccompProfile": "seccomp_profile",
    "appArmorProfile": "app_armor_profile",
}


def effective_setting(pod: Pod, container: Container, name: str) -> Any:
    """A field of the effective security context: the container's, else the pod's; None where neither sets it.

    Follows: v1.36, pkg/securitycontext/util.go, DetermineEffectiveSecurityContext.
    """
    value = (container.security_context or {}).get(name)
    pod_context = pod.spec.security_context or PodSecurityContext()
    return value if value is not None or name not in _POD_FIELDS else getattr(pod_context, _POD_FIELDS[name])


class ProcessPrivileges(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of a process and whether it can gain more."""

    capabilities: frozenset[int] | None = None
    """The numbers of the capabilities that it keeps; None: all of its parent's."""
    no_new_privs: bool = False
    """The kernel's `no_new_privs` flag: executed programs grant no further privileges."""


def container_privileges(container: Container) -> ProcessPrivileges:
    """The privileges of a container that runs as a plain process: the agent's, without the dropped capabilities.

    Departs: a container without a security context keeps all of root's capabilities; runtimes leave it fourteen.
    """
    context = container.security_context or {}
    capabilities = context.get("capabilities") or {}
    dropped, added = (_capability_numbers(capabilities.get(name)) for name in ("drop", "add"))
    is_privileged = bool(context.get("privileged"))
    return ProcessPrivileges(
        capabilities=None if is_privileged or not dropped else (_ALL - dropped) | added,
        no_new_privs=context.get("allowPrivilegeEscalation") is False,
    )


def unsupported_settings(pod: Pod, container: Container) -> Iterator[str]:
    """The security settings that cannot be applied to a plain process, each with the reason."""
    context = container.security_context or {}
    if context.get("readOnlyRootFilesystem"):
        yield f"readOnlyRootFilesystem: {_FILES}"
    for name in ("seccompProfile", "appArmorProfile"):
        profile: Mapping[str, Any] = effective_setting(pod, container, name) or {}
        if profile.get("type", "Unconfined") != "Unconfined":
            yield f"{name} {profile['type']}: {_PROFILES}"
    if effective_setting(pod, container, "seLinuxOptions"):
        yield f"seLinuxOptions: {_PROFILES}"
    capabilities = context.get("capabilities") or {}
    for name in (*(capabilities.get("add") or ()), *(capabilities.get("drop") or ())):
        if not _capability_numbers((name,)):
            yield f"capabilities: {name}: unknown capability"
    if pod.spec.security_context is not None and pod.spec.security_context.sysctls:
        yield f"sysctls: {_MACHINE}"
    if pod.spec.host_users is False:
        yield "hostUsers false: the process uses the host's user IDs"


def _capability_numbers(names: Any) -> frozenset[int]:
    """The numbers of the capabilities, which are named with or without the prefix CAP_, as runtimes accept them."""
    numbers = set[int]()
    for name in names or ():
        plain = str(name).upper().removeprefix("CAP_")
        if plain == "ALL":
            return _ALL
        if plain in CAPABILITIES:
            numbers.add(CAPABILITIES.index(plain))
    return frozenset(numbers)
