"""The rules for names and labels: the API server's messages about a text; none if it is valid.

Also the names of sysctls and the kernel namespaces that they belong to.
"""

import re

from nodewright.model.patterns import lazy_pattern

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"

_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"

_LABEL_RE = lazy_pattern(_LABEL, re.ASCII)
_SUBDOMAIN_RE = lazy_pattern(_SUBDOMAIN, re.ASCII)
_KEY_RE = lazy_pattern(_KEY, re.ASCII)
_VALUE_RE = lazy_pattern(_VALUE, re.ASCII)
_IDENTIFIER_RE = lazy_pattern(_IDENTIFIER, re.ASCII)
_PATH_RE = lazy_pattern(_PATH, re.ASCII)
_PORT_RE = lazy_pattern(r"[-a-z0-9]+", re.ASCII)

_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_KEY_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_IDENTIFIER_RULE = (
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'"
)
_VALUE_RULE = f"a valid label must be an empty string or {_KEY_RULE.removeprefix('must ')}"
_EMPTY = "must be non-empty"

_IPC = frozenset(
    [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ]
)
_PREFIXES = {"net.": "Net", "fs.mqueue.": "IPC"}
_PREFIXES_WITH_USER = {**_PREFIXES, "user.": "User"}


def dns1123_label_errors(text: str) -> list[str]:
    """Why the text is not a DNS label, as container names are.

    Follows: v1.36, apimachinery/pkg/api/validate/content/dns.go, IsDNS1123Label.
    """
    rules = _too_many_characters(text, 63)
    if not _LABEL_RE.fullmatch(text):
        if _SUBDOMAIN_RE.fullmatch(text):
            rules.append("must not contain dots")
        else:
            rules.append(_NO_LABEL)
    return rules


def dns1123_subdomain_errors(text: str) -> list[str]:
    """Why the text is not a DNS subdomain, as most object names are.

    Follows: v1.36, apimachinery/pkg/api/validate/content/dns.go, IsDNS1123Subdomain.
    """
    rules = _too_many_characters(text, 253)
    if not _SUBDOMAIN_RE.fullmatch(text):
        rules.append(_NO_SUBDOMAIN)
    return rules


def c_identifier_errors(text: str) -> list[str]:
    """Why the text is not an identifier, as names of device attributes are.

    Follows: v1.36, apimachinery/pkg/api/validate/content/identifier.go, IsCIdentifier.
    """
    return [] if _IDENTIFIER_RE.fullmatch(text) else [_NO_IDENTIFIER]


def label_key_errors(text: str) -> list[str]:
    """Why the text is not a label key or a resource name.

    Follows: v1.36, apimachinery/pkg/api/validate/content/kube.go, IsLabelKey.
    """
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        return [
            f"a valid label key {_NO_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    rules: list[str] = []
    for prefix in prefixes:
        rules.extend(
            f"prefix part {rule}"
            for rule in (_in_bytes(dns1123_subdomain_errors(prefix)) if prefix else [_EMPTY])
        )
    rules.extend(f"name part {rule}" for rule in (_too_long(name, 63) if name else [_EMPTY]))
    if not _KEY_RE.fullmatch(name):
        rules.append(f"name part {_NO_KEY}")
    return rules


def http_path_errors(text: str) -> list[str]:
    """Why the text is not the path of a name such as `example.com/path`.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsDomainPrefixedPath.
    """
    return [] if _PATH_RE.fullmatch(text) else [f"Invalid path (regex used for validation is '{_PATH}')"]


def path_segment_errors(text: str) -> list[str]:
    """Why a name cannot be asked for at an API server: it is no segment of a path.

    Follows: v1.36, client-go/rest/request.go, IsValidPathSegmentName.

    >>> path_segment_errors(".."), path_segment_errors("a/%"), path_segment_errors("a b")
    (["may not be '..'"], ["may not contain '/'", "may not contain '%'"], [])
    """
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in text]


def label_value_errors(text: str) -> list[str]:
    """Why the text is not a label value.

    Follows: v1.36, apimachinery/pkg/api/validate/content/kube.go, IsLabelValue.
    """
    rules = _too_long(text, 63)
    if not _VALUE_RE.fullmatch(text):
        rules.append(_NO_VALUE)
    return rules


def is_label_key(text: str) -> bool:
    """Whether the text is a label key: a name, or a DNS subdomain, a slash and a name.

    >>> is_label_key("example.com/gpu"), is_label_key("Example.com/gpu"), is_label_key("gpu_1")
    (True, False, True)
    """
    return not label_key_errors(text)


def is_label_value(text: str) -> bool:
    """Whether the text is a label value.

    >>> is_label_value(""), is_label_value("a.b-c"), is_label_value("-1")
    (True, True, False)
    """
    return not label_value_errors(text)


def _shape(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


_NO_LABEL = _shape(_LABEL_RULE, _LABEL, "my-name", "123-abc")
_NO_SUBDOMAIN = _shape(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com")
_NO_KEY = _shape(_KEY_RULE, _KEY, "MyName", "my.name", "123-abc")
_NO_IDENTIFIER = _shape(_IDENTIFIER_RULE, _IDENTIFIER, "my_name", "MY_NAME", "MyName")
_NO_VALUE = _shape(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345")


def _in_bytes(rules: list[str]) -> list[str]:
    return [rule.replace("253 characters", "253 bytes") for rule in rules]


def _size(text: str) -> int:
    """In bytes; words of a command line may hold bytes that are no UTF-8."""
    return len(text.encode(errors="surrogateescape"))


def _too_many_characters(text: str, most: int) -> list[str]:
    """As `_too_long`, in the words for names, which count bytes as well.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, MaxLenError.
    """
    return [f"must be no more than {most} characters"] if _size(text) > most else []


def _too_long(text: str, most: int) -> list[str]:
    return [f"must be no more than {most} bytes"] if _size(text) > most else []


# ---------------------------------------------------------------- keys, variables, ports, headers, addresses


def config_key_errors(text: str) -> list[str]:
    """Why the text is not the key of a ConfigMap or Secret, and so no name of a file.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsConfigMapKey.
    """
    rules = ["must be no more than 253 characters"] if _size(text) > 253 else []
    if not _CONFIG_KEY_RE.fullmatch(text):
        rules.append(_NO_CONFIG_KEY)
    if text in (".", ".."):
        rules.append(f"must not be '{text}'")
    elif text.startswith(".."):
        rules.append("must not start with '..'")
    return rules


def env_name_errors(text: str) -> list[str]:
    """Why the text is not the name of an environment variable.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsRelaxedEnvVarName.
    """
    rules = [] if text else [f"environment variable name {_EMPTY}"]
    if not _PRINTABLE_RE.fullmatch(text):
        rules.append(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        )
    return rules


def port_name_errors(text: str) -> list[str]:
    """Why the text is not the name of a port.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsValidPortName.
    """
    rules = ["must be no more than 15 characters"] if _size(text) > 15 else []
    if not _PORT_RE.fullmatch(text):
        rules.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", text):
        rules.append("must contain at least one letter (a-z)")
    if "--" in text:
        rules.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        rules.append("must not begin or end with a hyphen")
    return rules


def header_name_errors(text: str) -> list[str]:
    """Why the text is not the name of an HTTP header.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsHTTPHeaderName.
    """
    return [] if _HEADER_RE.fullmatch(text) else [_NO_HEADER]


def search_domain_errors(text: str) -> list[str]:
    """Why the text is not a search domain of a resolver.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsDNS1123SubdomainWithUnderscore.
    """
    rules = ["must be no more than 253 characters"] if _size(text) > 253 else []
    return rules if re.fullmatch(_SEARCH, text, re.ASCII) else [*rules, _NO_SEARCH]


def ip_errors(text: str) -> list[str]:
    """Why the text is not an IP address.

    Follows: v1.36, apimachinery/pkg/util/validation/ip.go, IsValidIPForLegacyField, strict.

    >>> ip_errors("10.0.0.01"), ip_errors("fe80::1"), ip_errors("::ffff:1.2.3.4")
    (['must not have leading 0s'], [], ['must not be an IPv4-mapped IPv6 address'])
    """
    from ipaddress import IPv6Address, ip_address  # noqa: PLC0415 - start-up time

    without_zeros = re.sub(r"\b0+(?=[0-9])", "", text) if ":" not in text else text
    try:
        address = ip_address(without_zeros)
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if "%" in text:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if without_zeros != text:
        return ["must not have leading 0s"]
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped is not None
    return ["must not be an IPv4-mapped IPv6 address"] if mapped else []


_CONFIG_KEY = r"[-._a-zA-Z0-9]+"
_CONFIG_KEY_RE = lazy_pattern(_CONFIG_KEY, re.ASCII)
_NO_CONFIG_KEY = _shape(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_PRINTABLE_RE = lazy_pattern(r"[ -<>-~]*", re.ASCII)
_HEADER = r"[-A-Za-z0-9]+"
_HEADER_RE = lazy_pattern(_HEADER, re.ASCII)
_NO_HEADER = _shape(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
)
_UNDERSCORED = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH = rf"{_UNDERSCORED}(\.{_UNDERSCORED})*"
_NO_SEARCH = _shape(_SUBDOMAIN_RULE.replace("'-' or", "'_', '-' or"), _SEARCH, "example.com")


# ---------------------------------------------------------------- sysctls


SYSCTL_NAME = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
MAX_SYSCTL_BYTES = 253
_SYSCTL_RE = lazy_pattern(SYSCTL_NAME.replace("$", r"\Z"), re.ASCII)


def is_sysctl_name(name: str) -> bool:
    """Whether the text can be the name of a sysctl.

    Follows: v1.36, pkg/apis/core/validation/validation.go, IsValidSysctlName.
    """
    return len(name.encode()) <= MAX_SYSCTL_BYTES and _SYSCTL_RE.match(name) is not None


def dotted_sysctl(sysctl: str) -> str:
    """The name of a sysctl with dots between its parts; in names written with slashes, both are swapped.

    >>> dotted_sysctl("net/ipv4/conf/eth0.100/forwarding")
    'net.ipv4.conf.eth0/100.forwarding'
    """
    separators = [character for character in sysctl if character in "./"]
    if not separators or separators[0] == ".":
        return sysctl
    return sysctl.translate(str.maketrans("./", "/."))


def sysctl_namespace(sysctl: str, *, uts_and_user: bool = True) -> str:
    """The kernel namespace that a sysctl written with dots belongs to: `IPC`, `Net`, `UTS`, `User` or nothing.

    ``uts_and_user``: as in `ReleaseRules`.
    Follows: v1.37, component-helpers/node/util/sysctl/namespace.go, namespaceOf.
    """
    if sysctl in _IPC:
        return "IPC"
    if uts_and_user and sysctl == "kernel.domainname":
        return "UTS"
    prefixes = _PREFIXES_WITH_USER if uts_and_user else _PREFIXES
    return next((namespace for prefix, namespace in prefixes.items() if sysctl.startswith(prefix)), "")
