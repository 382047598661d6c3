"""As whom may a container run, and what may it do?"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.model.objects import Container, Pod
from nodewright.model.pod_settings import PodSecurityContext

ROOT, MOST_USER_ID = 0, 2**31 - 1
CAPABILITIES = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
]
"""Their place is the kernel's number."""

_ALL = frozenset(range(len(CAPABILITIES)))
_FILES = "it sees the machine's own files"
_MACHINE = "what it would change is the machine's"
_PROFILES = "it is under the machine's own profiles"


def root_refusal(pod: Pod, container: Container, image_user: tuple[int | None, str]) -> str:
    """Why a container that must not run as root may not run; empty: it may.

    ``image_user`` is whom it runs as if the pod does not say: a number, or a name that nobody can look up.
    Follows: v1.36, kubelet/kuberuntime/security_context_others.go, verifyRunAsNonRoot.
    """
    if not setting(pod, container, "runAsNonRoot"):
        return ""
    metadata, uid, (number, name) = pod.metadata, setting(pod, container, "runAsUser"), image_user
    where = f'(pod: "{metadata.name}_{metadata.namespace}({pod.uid})", container: {container.name})'
    if uid is not None:
        return f"container's runAsUser breaks non-root policy {where}" if uid == ROOT else ""
    if number is None:
        why = f"image has non-numeric user ({name}), cannot verify user is non-root"
    elif number == ROOT:
        why = "image will run as root"
    elif not 0 < number <= MOST_USER_ID:
        rule = f"must be between 0 and {MOST_USER_ID}, inclusive"
        why = f"image has an invalid user id ({number}). (Must be 1-({MOST_USER_ID})): {rule}"
    else:
        return ""
    return f"container has runAsNonRoot and {why} {where}"


_OF_PODS = {
    "runAsNonRoot": "run_as_non_root",
    "runAsUser": "run_as_user",
    "runAsGroup": "run_as_group",
    "seLinuxOptions": "se_linux_options",
    "seccompProfile": "seccomp_profile",
    "appArmorProfile": "app_armor_profile",
}


def setting(pod: Pod, container: Container, name: str) -> Any:
    """A field of the security context: the container's own, else the pod's; None: nobody says anything.

    Follows: v1.36, pkg/securitycontext/util.go, DetermineEffectiveSecurityContext.
    """
    own = (container.security_context or {}).get(name)
    whole = pod.spec.security_context or PodSecurityContext()
    return own if own is not None or name not in _OF_PODS else getattr(whole, _OF_PODS[name])


class Powers(msgspec.Struct, frozen=True, kw_only=True):
    """What a process may do."""

    keeps: frozenset[int] | None = None
    """The numbers of the capabilities that it may have; None: all that whoever starts it has."""
    gains_nothing: bool = False
    """Whether no program that it runs gives it more (`no_new_privs`)."""


def powers(container: Container) -> Powers:
    """What a container may do that is a process of the machine: all that the agent may but for what is dropped.

    Departs: a container that says nothing keeps all of root's capabilities; runtimes leave it fourteen of them.
    """
    own = container.security_context or {}
    told = own.get("capabilities") or {}
    dropped, added = _numbers(told.get("drop")), _numbers(told.get("add"))
    is_privileged = bool(own.get("privileged"))
    return Powers(
        keeps=None if is_privileged or not dropped else (_ALL - dropped) | added,
        gains_nothing=own.get("allowPrivilegeEscalation") is False,
    )


def not_for_processes(pod: Pod, container: Container) -> Iterator[str]:
    """What of the settings no process of the machine can be held to that has no container around it, and why."""
    own = container.security_context or {}
    if own.get("readOnlyRootFilesystem"):
        yield f"readOnlyRootFilesystem: {_FILES}"
    for name in ("seccompProfile", "appArmorProfile"):
        profile: Mapping[str, Any] = setting(pod, container, name) or {}
        if profile.get("type", "Unconfined") != "Unconfined":
            yield f"{name} {profile['type']}: {_PROFILES}"
    if setting(pod, container, "seLinuxOptions"):
        yield f"seLinuxOptions: {_PROFILES}"
    told = own.get("capabilities") or {}
    for name in (*(told.get("add") or ()), *(told.get("drop") or ())):
        if not _numbers((name,)):
            yield f"capabilities: {name}: there is no such capability"
    if pod.spec.security_context is not None and pod.spec.security_context.sysctls:
        yield f"sysctls: {_MACHINE}"
    if pod.spec.host_users is False:
        yield "hostUsers false: it has the machine's own users"


def _numbers(names: Any) -> frozenset[int]:
    """The capabilities of these names; with or without CAP_ before them, as runtimes take them."""
    found = set[int]()
    for name in names or ():
        plain = str(name).upper().removeprefix("CAP_")
        if plain == "ALL":
            return _ALL
        if plain in CAPABILITIES:
            found.add(CAPABILITIES.index(plain))
    return frozenset(found)
