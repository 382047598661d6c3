"""Validation of what a pod asks of its machine: users and groups, sysctls, host names and DNS."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.security_profiles import (
    app_armor_violations,
    seccomp_violations,
    security_context_as_go,
)
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.engine.admission.validation.windows import windows_option_violations
from nodewright.model.kubernetes.name_validation import (
    dns1123_label_errors,
    dns1123_subdomain_errors,
    ip_errors,
    search_domain_errors,
)
from nodewright.model.kubernetes.objects import PodSpec
from nodewright.model.kubernetes.pod_spec_fields import PodDNSConfig, PodSecurityContext, Sysctl
from nodewright.model.kubernetes.sysctl_names import dotted_sysctl, sysctl_namespace
from nodewright.model.patterns import lazy_pattern

_MAX_ID = 2**31 - 1
_SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_SYSCTL_RE = lazy_pattern(_SYSCTL.replace("$", r"\Z"), re.ASCII)
_MAX_SYSCTL_BYTES = 253
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_LABEL_CHANGE_POLICIES = ("Recursive",)
_PROC_MOUNTS = ("Default", "Unmasked")
_GROUP_POLICIES = ("Always", "OnRootMismatch")
_SUPPLEMENTAL_POLICIES = ("Merge", "Strict")
_MAX_HOSTNAME_BYTES = 64
_MAX_NAMESERVERS, _MAX_SEARCHES, _MAX_SEARCH_BYTES = 3, 32, 2048


def pod_setting_violations(spec: PodSpec, path: str) -> Iterator[Violation]:
    """The violations in the pod's security context, host names and DNS settings.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePodSpec.
    """
    if spec.dns_policy and spec.dns_policy not in _DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", spec.dns_policy, _DNS_POLICIES)
    if spec.security_context is not None:
        yield from _security_context_violations(spec, spec.security_context, f"{path}.securityContext")
        if spec.share_process_namespace and spec.host_pid:
            rule = "ShareProcessNamespace and HostPID cannot both be enabled"
            yield invalid(f"{path}.securityContext.shareProcessNamespace", value=True, rule=rule)
    if spec.dns_config is not None or spec.dns_policy == "None":
        yield from _dns_violations(spec, f"{path}.dnsConfig")
    yield from _hostname_violations(spec, path)
    for index, alias in enumerate(spec.host_aliases):
        alias_path = f"{path}.hostAliases[{index}]"
        yield from each_invalid(f"{alias_path}.ip", alias.ip, ip_errors(alias.ip))
        for number, name in enumerate(alias.hostnames):
            yield from each_invalid(f"{alias_path}.hostnames[{number}]", name, dns1123_subdomain_errors(name))


def container_security_violations(
    context: Mapping[str, Any] | None, path: str, *, uses_host_users: bool
) -> Iterator[Violation]:
    """The violations in a container's security context.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateSecurityContext.
    Departs: the API server is assumed to allow privileged containers.
    """
    context = context or {}
    for field in ("runAsUser", "runAsGroup"):
        yield from _id_violations(context.get(field), f"{path}.{field}")
    mount = context.get("procMount")
    if mount is not None and mount not in _PROC_MOUNTS:
        yield not_supported(f"{path}.procMount", mount, _PROC_MOUNTS)
    if mount == "Unmasked" and uses_host_users:
        yield invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    yield from seccomp_violations(context.get("seccompProfile"), f"{path}.seccompProfile")
    yield from windows_option_violations(context.get("windowsOptions"), f"{path}.windowsOptions")
    yield from app_armor_violations(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    if context.get("allowPrivilegeEscalation") is False:
        added = (context.get("capabilities") or {}).get("add") or ()
        rule = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            yield invalid(path, security_context_as_go(context), f"{rule} `privileged` to true")
        if "CAP_SYS_ADMIN" in added:
            yield invalid(path, security_context_as_go(context), f"{rule} `capabilities.Add` CAP_SYS_ADMIN")


def _security_context_violations(
    spec: PodSpec, context: PodSecurityContext, path: str
) -> Iterator[Violation]:
    """The violations in a pod's security context.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodSpecSecurityContext.
    """
    for field, number in (
        ("fsGroup", context.fs_group),
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
    ):
        yield from _id_violations(number, f"{path}.{field}")
    for index, group in enumerate(context.supplemental_groups):
        yield from _id_violations(group, f"{path}.supplementalGroups[{index}]")
    yield from _sysctl_violations(spec, context.sysctls, f"{path}.sysctls")
    yield from seccomp_violations(context.seccomp_profile, f"{path}.seccompProfile")
    yield from windows_option_violations(context.windows_options, f"{path}.windowsOptions")
    yield from app_armor_violations(context.app_armor_profile, f"{path}.appArmorProfile")
    for field, policy, supported in (
        ("fsGroupChangePolicy", context.fs_group_change_policy, _GROUP_POLICIES),
        ("supplementalGroupsPolicy", context.supplemental_groups_policy, _SUPPLEMENTAL_POLICIES),
        # MountOption needs a gate that is off by default.
        ("seLinuxChangePolicy", context.se_linux_change_policy, _LABEL_CHANGE_POLICIES),
    ):
        if policy is not None and policy not in supported:
            yield not_supported(f"{path}.{field}", policy, supported)


def _id_violations(number: int | None, path: str) -> Iterator[Violation]:
    """The violation of a user or group id that Linux does not have.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsValidUserID, IsValidGroupID.
    """
    if number is not None and not 0 <= number <= _MAX_ID:
        yield invalid(path, number, f"must be between 0 and {_MAX_ID}, inclusive")


def _sysctl_violations(spec: PodSpec, sysctls: tuple[Sysctl, ...], path: str) -> Iterator[Violation]:
    """The violations in sysctls.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateSysctls.
    """
    names: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        field, name = f"{path}[{index}].name", sysctl.name
        if not name:
            yield required(field)
        elif len(name.encode()) > _MAX_SYSCTL_BYTES or not _SYSCTL_RE.match(name):
            yield invalid(
                field, name, f"must have at most {_MAX_SYSCTL_BYTES} characters and match regex {_SYSCTL}"
            )
        elif name in names:
            yield duplicate(field, name)
        namespace = sysctl_namespace(dotted_sysctl(name).partition("*")[0])
        if spec.host_network and namespace == "Net":
            yield invalid(field, name, "may not be specified when 'hostNetwork' is true")
        if spec.host_ipc and namespace == "IPC":
            yield invalid(field, name, "may not be specified when 'hostIPC' is true")
        names.add(name)


def _hostname_violations(spec: PodSpec, path: str) -> Iterator[Violation]:
    """The violations in host names.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodHostName and ValidatePodSpec.
    """
    override = spec.hostname_override
    if override is not None:
        field = f"{path}.hostnameOverride"
        if spec.set_hostname_as_fqdn:
            yield forbidden(field, "may not be specified when setHostnameAsFQDN is true")
        if spec.host_network:
            yield forbidden(field, "may not be specified when hostNetwork is true")
        if len(override.encode()) > _MAX_HOSTNAME_BYTES:
            yield Violation(
                field, ErrorType.TOO_LONG, None, f"may not be more than {_MAX_HOSTNAME_BYTES} bytes"
            )
        yield from each_invalid(field, override, dns1123_subdomain_errors(override))
    account = spec.service_account_name
    if account:
        yield from each_invalid(f"{path}.serviceAccountName", account, dns1123_subdomain_errors(account))
    for name_field, name in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        if name:
            yield from each_invalid(f"{path}.{name_field}", name, dns1123_label_errors(name))


def _dns_violations(spec: PodSpec, path: str) -> Iterator[Violation]:
    """The violations in the pod's DNS settings.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodDNSConfig.
    """
    config = spec.dns_config
    if spec.dns_policy == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
        elif not config.nameservers:
            rule = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(f"{path}.nameservers", rule)
            return
    if config is not None:
        yield from _dns_config_violations(config, path)


def _dns_config_violations(config: PodDNSConfig, path: str) -> Iterator[Violation]:
    servers, searches = config.nameservers, config.searches
    if len(servers) > _MAX_NAMESERVERS:
        rule = f"must not have more than {_MAX_NAMESERVERS} nameservers"
        yield invalid(f"{path}.nameservers", servers, rule)
    for index, server in enumerate(servers):
        yield from each_invalid(f"{path}.nameservers[{index}]", server, ip_errors(server))
    if len(searches) > _MAX_SEARCHES:
        rule = f"must not have more than {_MAX_SEARCHES} search paths"
        yield invalid(f"{path}.searches", searches, rule)
    if len(" ".join(searches).encode()) > _MAX_SEARCH_BYTES:
        rule = f"must not have more than {_MAX_SEARCH_BYTES} characters (including spaces) in the search list"
        yield invalid(f"{path}.searches", searches, rule)
    for index, search in enumerate(searches):
        if search != ".":
            domain = search.removesuffix(".")
            yield from each_invalid(f"{path}.searches[{index}]", domain, search_domain_errors(domain))
    for index, option in enumerate(config.options):
        if not option.name:
            yield required(f"{path}.options[{index}]", "must not be empty")
