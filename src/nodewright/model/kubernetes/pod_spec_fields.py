"""Parts of a pod's spec for runtimes: security context, hosts, DNS.

Also the fields of a pod that the downward API offers: their labels, subscripts and errors.
"""

from typing import Any

import msgspec

_FIELDS = frozenset(
    [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.host",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ]
)
SUBSCRIPTED_FIELDS = ("metadata.annotations", "metadata.labels")


class Sysctl(msgspec.Struct, frozen=True):
    """A kernel parameter that a pod sets."""

    name: str = ""
    value: str = ""


class PodSecurityContext(msgspec.Struct, frozen=True, rename="camel"):
    """The pod-level security settings that admission and runtimes use."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    supplemental_groups: tuple[int, ...] = ()
    seccomp_profile: dict[str, Any] | None = None
    se_linux_options: dict[str, Any] | None = None
    supplemental_groups_policy: str | None = None
    sysctls: tuple[Sysctl, ...] = ()
    app_armor_profile: dict[str, Any] | None = None
    se_linux_change_policy: str | None = None
    windows_options: dict[str, Any] | None = None


class HostAlias(msgspec.Struct, frozen=True):
    """An additional entry in the hosts file of a pod."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodDNSConfigOption(msgspec.Struct, frozen=True):
    """A resolver option."""

    name: str = ""
    value: str | None = None


class PodDNSConfig(msgspec.Struct, frozen=True):
    """A pod's additions to its DNS policy."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class ContainerResizePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a container restarts when one of its resources is resized."""

    resource_name: str = ""
    restart_policy: str = ""


class PodOS(msgspec.Struct, frozen=True):
    """The operating system of a pod."""

    name: str = ""


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a container."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""
    name: str = ""


class EnvVar(msgspec.Struct, frozen=True, rename="camel"):
    """An environment variable."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


def split_subscript(path: str) -> tuple[str, str | None]:
    """A field's path and its subscript; None: it has none.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, SplitMaybeSubscriptedPath.

    >>> split_subscript("metadata.labels['a[b]c']"), split_subscript("metadata.labels")
    (('metadata.labels', 'a[b]c'), ('metadata.labels', None))
    """
    base, opened, subscript = path.removesuffix("']").partition("['")
    if not path.endswith("']") or not opened or not base:
        return path, None
    return base, subscript


def field_label_error(version: str, path: str) -> str:
    """Why the path is no field label of that version; empty if it is one.

    Follows: v1.36, pkg/apis/core/pods/helpers.go, ConvertDownwardAPIFieldLabel.

    >>> field_label_error("v1", "spec.containers")
    'field label not supported: spec.containers'
    """
    if version != "v1":
        return f"unsupported pod version: {version}"
    base, subscript = split_subscript(path)
    if subscript is not None:
        is_known = base in SUBSCRIPTED_FIELDS
        return "" if is_known else f"field label does not support subscript: {path}"
    return "" if path in _FIELDS else f"field label not supported: {path}"
