"""Validation of what a pod asks of its machine: users and groups, sysctls, host names and DNS.

Also of the seccomp and AppArmor profiles that pods and containers name, and of what only Windows pods may set and what they must
not set.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.references import relative_path_violations
from nodewright.engine.admission.validation.violation import (
    Violation,
    containers_with_fields,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    list_violations,
    not_supported,
    optional_name_violations,
    required,
    unless_short,
    unless_supported,
)
from nodewright.model.kubernetes.name_validation import (
    MAX_SYSCTL_BYTES,
    SYSCTL_NAME,
    dns1123_label_errors,
    dns1123_subdomain_errors,
    dotted_sysctl,
    ip_errors,
    is_sysctl_name,
    search_domain_errors,
    sysctl_namespace,
)
from nodewright.model.kubernetes.objects import PodSpec
from nodewright.model.kubernetes.pod_spec_fields import PodDNSConfig, PodSecurityContext, Sysctl
from nodewright.model.patterns import lazy_pattern

_MAX_ID = 2**31 - 1
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_LABEL_CHANGE_POLICIES = ("Recursive",)
_PROC_MOUNTS = ("Default", "Unmasked")
_GROUP_POLICIES = ("Always", "OnRootMismatch")
_SUPPLEMENTAL_POLICIES = ("Merge", "Strict")
_MAX_HOSTNAME_BYTES = 64
_MAX_NAMESERVERS, _MAX_SEARCHES, _MAX_SEARCH_BYTES = 3, 32, 2048

_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_PROFILE_BYTES = 4095

Profile = Mapping[str, Any] | None

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


def pod_setting_violations(spec: PodSpec, path: str) -> Iterator[Violation]:
    """The violations in the pod's security context, host names and DNS settings.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePodSpec.
    """
    yield from unless_supported(f"{path}.dnsPolicy", spec.dns_policy or None, _DNS_POLICIES)
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
    yield from unless_supported(f"{path}.procMount", mount, _PROC_MOUNTS)
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


def seccomp_violations(profile: Profile, path: str) -> Iterator[Violation]:
    """The violations in `seccompProfile`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateSeccompProfileField.
    """
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    yield from _type_violations(kind, f"{path}.type", "type is required when seccompProfile is set")
    local_path = f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is None:
            yield required(local_path, "must be set when seccomp type is Localhost")
        else:
            yield from relative_path_violations(local, local_path)
    elif local is not None:
        shown = {"Type": kind, "LocalhostProfile": local}
        yield invalid(local_path, shown, "can only be set when seccomp type is Localhost")


def app_armor_violations(profile: Profile, path: str) -> Iterator[Violation]:
    """The violations in `appArmorProfile`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateAppArmorProfileField.
    """
    if profile is None:
        return
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    local_path, needed = f"{path}.localhostProfile", "must be set when AppArmor type is Localhost"
    if kind not in _TYPES:
        yield from _type_violations(kind, f"{path}.type", "type is required when appArmorProfile is set")
    elif kind != "Localhost":
        if local is not None:
            yield invalid(local_path, local, "can only be set when AppArmor type is Localhost")
    elif local is None:
        yield required(local_path, needed)
    else:
        if local != local.strip():
            yield invalid(local_path, local, "must not be padded with whitespace")
        elif not local:
            yield required(local_path, needed)
        yield from unless_short(local_path, local, _MAX_PROFILE_BYTES)


def security_context_as_go(context: Mapping[str, Any]) -> dict[str, Any]:
    """A container's security context as the API server prints it: all fields of its own type, absent ones as null."""
    return {
        _go_name(field): _with_all_fields(context.get(field), absent)
        for field, absent in _SECURITY_FIELDS.items()
    }


def windows_option_violations(options: Options, path: str) -> Iterator[Violation]:
    """The violations in `windowsOptions`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateWindowsSecurityContextOptions.
    """
    options = options or {}
    name, spec = options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec")
    yield from optional_name_violations(f"{path}.gmsaCredentialSpecName", name)
    if spec == "":
        yield invalid(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string")
    elif spec is not None and len(spec.encode()) > _MAX_SPEC_KIB * 1024:
        rule = f"gmsaCredentialSpec size must be under {_MAX_SPEC_KIB} KiB"
        yield invalid(f"{path}.gmsaCredentialSpec", spec, rule)
    user = options.get("runAsUserName")
    if user is not None:
        rules = [f"runAsUserName{rule}" for rule in _user_name_rules(user)]
        yield from each_invalid(f"{path}.runAsUserName", user, rules)


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
    yield from list_violations(_id_violations, context.supplemental_groups, f"{path}.supplementalGroups")
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
        yield from unless_supported(f"{path}.{field}", policy, supported)


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
        elif not is_sysctl_name(name):
            rule = f"must have at most {MAX_SYSCTL_BYTES} characters and match regex {SYSCTL_NAME}"
            yield invalid(field, name, rule)
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
        yield from unless_short(field, override, _MAX_HOSTNAME_BYTES)
        yield from each_invalid(field, override, dns1123_subdomain_errors(override))
    account = spec.service_account_name or spec.service_account or None
    yield from optional_name_violations(f"{path}.serviceAccountName", account)
    yield from optional_name_violations(f"{path}.hostname", spec.hostname or None, dns1123_label_errors)
    yield from optional_name_violations(f"{path}.subdomain", spec.subdomain or None, dns1123_label_errors)


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


def _type_violations(kind: str, path: str, rule: str) -> Iterator[Violation]:
    if not kind:
        yield required(path, rule)
    elif kind not in _TYPES:
        yield not_supported(path, kind, _TYPES)


def _with_all_fields(value: Any, absent: Mapping[str, Any]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {_go_name(field): value.get(field, default) for field, default in absent.items()}


def _go_name(field: str) -> str:
    for start, name in (("seLinux", "SELinux"), ("gmsa", "GMSA")):
        if field.startswith(start):
            return name + field.removeprefix(start)
    return field[0].upper() + field[1:]


_PROFILE: Mapping[str, Any] = {"type": "", "localhostProfile": None}
_SECURITY_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "capabilities": {"add": None, "drop": None},
    "privileged": {},
    "seLinuxOptions": {"user": "", "role": "", "type": "", "level": ""},
    "windowsOptions": dict.fromkeys(
        ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName", "hostProcess")
    ),
    "runAsUser": {},
    "runAsGroup": {},
    "runAsNonRoot": {},
    "readOnlyRootFilesystem": {},
    "allowPrivilegeEscalation": {},
    "procMount": {},
    "seccompProfile": _PROFILE,
    "appArmorProfile": _PROFILE,
}
"""The fields in the order of the API server's type, each with what absent fields in it are printed as."""


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
