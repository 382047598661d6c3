"""Validation of what only Windows pods may set, and of what they must not set."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.violation import (
    Violation,
    containers_with_fields,
    each_invalid,
    forbidden,
    invalid,
)
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.model.kubernetes.objects import PodSpec
from nodewright.model.kubernetes.pod_spec_fields import PodSecurityContext
from nodewright.model.patterns import lazy_pattern

Options = Mapping[str, Any] | None
"""The field `windowsOptions` of a security context."""

_CONTROL = lazy_pattern(r"[\x00-\x1f\x7f]")
_NETBIOS = lazy_pattern(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = lazy_pattern(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_USER_CHARACTERS = lazy_pattern(r'["/\\:;|=,+*?<>@\[\]]')
_MAX_SPEC_KIB, _MAX_DOMAIN_BYTES, _MAX_USER_BYTES = 64, 256, 104
_NOT_FOR_WINDOWS = "cannot be set for a windows pod"
_OF_CONTAINERS = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip


def windows_option_violations(options: Options, path: str) -> Iterator[Violation]:
    """The violations in `windowsOptions`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateWindowsSecurityContextOptions.
    """
    options = options or {}
    name, spec = options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec")
    if name is not None:
        yield from each_invalid(f"{path}.gmsaCredentialSpecName", name, dns1123_subdomain_errors(name))
    if spec == "":
        yield invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string")
    elif spec is not None and len(spec.encode()) > _MAX_SPEC_KIB * 1024:
        rule = f"gmsaCredentialSpec size must be under {_MAX_SPEC_KIB} KiB"
        yield invalid(f"{path}.gmsaCredentialSpec", spec, rule)
    user = options.get("runAsUserName")
    if user is not None:
        rules = [f"runAsUserName{rule}" for rule in _user_name_rules(user)]
        yield from each_invalid(f"{path}.runAsUserName", user, rules)


def _user_name_rules(name: str) -> Iterator[str]:
    """The rules that a user name with or without its domain breaks."""
    domain, has_domain, user = name.rpartition("\\")
    if not name:
        yield " cannot be an empty string"
    elif _CONTROL.search(name):
        yield " cannot contain control characters"
    elif "\\" in domain:
        yield " cannot contain more than one backslash"
    else:
        if len(domain.encode()) >= _MAX_DOMAIN_BYTES:
            yield f"'s Domain length must be under {_MAX_DOMAIN_BYTES} characters"
        if has_domain and not (_NETBIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
            yield "'s Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "'s User cannot be empty"
        elif len(user.encode()) > _MAX_USER_BYTES:
            yield f"'s User length must not be longer than {_MAX_USER_BYTES} characters"
        if user and not user.strip(". "):
            yield "'s User cannot contain only periods or spaces"
        if _USER_CHARACTERS.search(user):
            yield "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def operating_system_violations(spec: PodSpec, system: str, path: str) -> Iterator[Violation]:
    """The fields of other operating systems that a pod of this one sets.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateLinux, validateWindows.
    """
    context = spec.security_context or PodSecurityContext()
    fields: list[tuple[str, object]]
    names: tuple[str, ...]
    if system == "windows":
        fields = [
            ("securityContext.appArmorProfile", context.app_armor_profile),
            ("securityContext.seLinuxOptions", context.se_linux_options),
            ("hostUsers", spec.host_users),
            ("hostPID", spec.host_pid or None),
            ("hostIPC", spec.host_ipc or None),
            ("securityContext.seccompProfile", context.seccomp_profile),
            ("securityContext.fsGroup", context.fs_group),
            ("securityContext.fsGroupChangePolicy", context.fs_group_change_policy),
            ("securityContext.sysctls", context.sysctls or None),
            ("shareProcessNamespace", spec.share_process_namespace or None),
            ("securityContext.runAsUser", context.run_as_user),
            ("securityContext.runAsGroup", context.run_as_group),
            ("securityContext.supplementalGroups", context.supplemental_groups or None),
            ("securityContext.supplementalGroupsPolicy", context.supplemental_groups_policy),
            ("securityContext.seLinuxChangePolicy", context.se_linux_change_policy),
        ]
        names, rule = _OF_CONTAINERS, _NOT_FOR_WINDOWS
    else:
        fields = [("securityContext.windowsOptions", context.windows_options)]
        names, rule = ("windowsOptions",), "windows options cannot be set for a linux pod"
    for container_path, container in containers_with_fields(spec):
        security = container.security_context or {}
        fields += [(f"{container_path}.securityContext.{name}", security.get(name)) for name in names]
    for name, value in fields:
        if value is not None:
            yield forbidden(f"{path}.{name}", rule)


def host_process_violations(spec: PodSpec, path: str) -> Iterator[Violation]:
    """The violations in a pod with containers that are processes of a Windows machine.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateWindowsHostProcessPod.
    Departs: the API server is assumed to allow privileged pods.
    """
    context = spec.security_context
    of_pod = None if context is None else (context.windows_options or {}).get("hostProcess")
    in_host: list[bool] = []
    for container_path, container in containers_with_fields(spec):
        options: Options = (container.security_context or {}).get("windowsOptions")
        value = (options or {}).get("hostProcess")
        if of_pod is not None and value is not None and of_pod != value:
            field = f"{path}.{container_path}.securityContext.windowsOptions.hostProcess"
            shown = str(of_pod).lower()
            rule = f"pod hostProcess value must be identical if both are specified, was {shown}"
            yield invalid(field, value=value, rule=rule)
        in_host.append(bool(of_pod if value is None else value))
    if any(in_host):
        if not all(in_host):
            rule = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
            yield invalid(path, "", rule)
        if not spec.host_network:
            rule = "hostNetwork must be true if pod contains any hostProcess containers"
            yield invalid(f"{path}.hostNetwork", value=False, rule=rule)
