"""What Kubernetes' own functions compute, and those of time; a ValueError is the text of an evaluation that fails.

Follows: v1.36, vendor/github.com/google/cel-go/common/stdlib/standard.go; apiserver/pkg/cel/library/*.go.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from nodewright.engine.core.claims.cel.libraries import parses
from nodewright.engine.core.claims.cel.values import (
    NO_OVERLOAD,
    NONE,
    URL,
    Address,
    Format,
    Maybe,
    Network,
    Semver,
    Sum,
    Value,
)
from nodewright.model.kubernetes import name_validation
from nodewright.model.values.duration import Duration
from nodewright.model.values.golang import quoted
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity, QuantityFormat

# ---------------------------------------------------------------- time

_DAY_NS = 86_400 * 10**9
_DATE_PARTS = ("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek")
_UNITS = {"getHours": 3600 * 10**9, "getMinutes": 60 * 10**9, "getSeconds": 10**9, "getMilliseconds": 10**6}
TIME_PARTS = (*_DATE_PARTS, *_UNITS)


def time_part(name: str, value: Instant | Duration, zone: str = "UTC") -> int:
    """A part of a timestamp in a time zone, or of a duration."""
    if isinstance(value, Duration):
        size = abs(value.nanoseconds) // _UNITS[name]
        return -size if value.nanoseconds < 0 else size
    hours, colon, minutes = zone.partition(":")
    if not colon and zone not in ("UTC", ""):
        raise ValueError(f"unknown time zone {zone}")
    for part in (hours, minutes) if colon else ():
        if not re.fullmatch(r"[+-]?[0-9]{1,3}", part, re.ASCII):
            raise ValueError(f"strconv.Atoi: parsing {quoted(part)}: invalid syntax")
    offset = int(hours) * 60 + (-1 if zone[0] == "-" else 1) * int(minutes) if colon else 0
    moment = Instant(value.nanoseconds + offset * 60 * 10**9)
    text, days = str(moment), moment.nanoseconds // _DAY_NS
    year, month, day, hour, minute, second = (int(text[at : at + 2]) for at in (2, 5, 8, 11, 14, 17))
    first_day = Instant.parse(f"{text[:4]}-01-01T00:00:00Z").nanoseconds // _DAY_NS
    thousandths = moment.nanoseconds // 10**6 % 1000
    date = (int(text[:2]) * 100 + year, month - 1, days - first_day, day - 1, day, (days + 4) % 7)
    return (*date, hour, minute, second, thousandths)[TIME_PARTS.index(name)]


# ---------------------------------------------------------------- quantities and versions


def order(left: Value, right: Value) -> int:
    """-1, 0 or 1 for two quantities or versions."""
    if isinstance(left, Quantity):
        return left.compare(right)
    return int(left.rank > right.rank) - int(left.rank < right.rank)


def as_integer(amount: Quantity) -> int:
    """The amount as a whole number."""
    number = amount.as_int64()
    if number is None:
        raise ValueError("cannot convert value to integer")
    return number


def add_quantity(sign: int, amount: Quantity, other: Quantity | int) -> Sum:
    """The sum or difference of amounts."""
    if not isinstance(other, Quantity):
        other = Quantity.of(other, QuantityFormat.DECIMAL_EXPONENT)
    total = amount + other if sign > 0 else amount - other
    return Sum(total.unscaled, total.scale, total.format, is_int64=total.is_int64)


def semver(text: str, is_normalized: bool = False) -> Value:  # noqa: FBT001, FBT002 - CEL passes it by position
    """The version of a text, which may be given in a looser form."""
    if not is_normalized:
        return Semver.parse(text)
    parts = [
        re.sub(r"^0*(?![0-9])", "0", part.lstrip("0")) if len(part.encode()) > 1 else part
        for part in text.removeprefix("v").split(".", 2)
    ]
    if len(parts) < 3 and re.search(r"[+-]", parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return Semver.parse(".".join((*parts, "0", "0")[: max(len(parts), 3)]))


# ---------------------------------------------------------------- networks and names


def _any_address(text: str) -> Any:
    from ipaddress import ip_address  # noqa: PLC0415 - start-up time

    return ip_address(text)


def _address(text: str) -> Any:
    try:
        address = _any_address(text)
    except ValueError:
        problem = f"IP Address {quoted(text)} parse error during conversion from string: "
        raise ValueError(problem + _address_problem(text)) from None
    if "%" in text:
        raise ValueError(f"IP address {quoted(text)} with zone value is not allowed")
    if getattr(address, "ipv4_mapped", None):
        raise ValueError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return address


def _prefix_problem(text: str) -> str:
    """Go's words for why a text is no prefix."""
    address, slash, bits = text.rpartition("/")
    if not slash:
        return "no '/'"
    if not parses(_any_address)(address):
        return _address_problem(address)
    if "%" in address:
        return "IPv6 zones cannot be present in a prefix"
    if not re.fullmatch(r"0|[1-9][0-9]*", bits, re.ASCII):
        return f"bad bits after slash: {quoted(bits)}"
    return "prefix length out of range"


def _address_problem(text: str) -> str:
    """Go's words for why a text is no address.

    Follows: Go 1.26, src/net/netip/netip.go, ParseAddr.
    """
    kind = re.search(r"[.:%]", text)
    problem, at = "unable to parse IP", ""
    if kind:
        problem, at = (
            ("missing IPv6 address", "")
            if kind[0] == "%"
            else _ipv4_problem(text)
            if kind[0] == "."
            else _ipv6_problem(text)
        )
    place = f" (at {quoted(at)})" if at else ""
    return f"ParseAddr({quoted(text)}): {problem}{place}"


def _ipv4_problem(text: str) -> tuple[str, str]:
    """What is wrong with four numbers, and from where on; empty: nothing."""
    field, count = "", 0
    for at, character in enumerate(text):
        if character in "0123456789":
            if field == "0":
                return "IPv4 field has octet with leading zero", ""
            field += character
            if int(field) > _MOST_IN_FIELD:
                return "IPv4 field has value >255", ""
        elif character == ".":
            if not field or at == len(text) - 1:
                return "IPv4 field must have at least one digit", text[at:]
            if count == _DOTS:
                return "IPv4 address too long", ""
            field, count = "", count + 1
        else:
            return "unexpected character", text[at:]
    return ("IPv4 address too short" if count < _DOTS else ""), ""


_MOST_IN_FIELD, _DOTS, _IPV6_BYTES = 255, 3, 16


def _ipv6_problem(text: str) -> tuple[str, str]:
    """What is wrong with an address of groups, and from where on."""
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        return "zone must be a non-empty string", ""
    has_gap = rest.startswith("::")
    rest, count = rest[2 * has_gap :], 0
    while count < _IPV6_BYTES and (rest or not has_gap):
        after = rest.lstrip("0123456789abcdefABCDEF")
        group = rest[: len(rest) - len(after)]
        problem = "each group must have 4 or less digits" if len(group) > _DOTS + 1 else ""
        problem = problem or ("" if group else "each colon-separated field must have at least one digit")
        if not problem and after.startswith("."):
            if not has_gap and count != _IPV6_BYTES - 4:
                problem = "embedded IPv4 address must replace the final 2 fields of the address"
            elif count > _IPV6_BYTES - 4:
                problem = "too many hex fields to fit an embedded IPv4 at the end of the address"
            else:
                wrong = _ipv4_problem(rest)
                return wrong if wrong[0] else _gap_problem(has_gap=has_gap)
        if problem:
            return problem, rest
        rest, count = after, count + 2
        if not rest:
            break
        if rest[0] != ":":
            return "unexpected character, want colon", rest
        if rest == ":":
            return "colon must be followed by more characters", rest
        rest = rest[1:]
        if rest[0] == ":":
            if has_gap:
                return "multiple :: in address", rest
            has_gap, rest = True, rest[1:]
            if not rest:
                break
    return ("trailing garbage after address", rest) if rest else _gap_problem(has_gap=has_gap)


def _gap_problem(*, has_gap: bool) -> tuple[str, str]:
    """What is wrong with the number of groups."""
    return (
        "the :: must expand to at least one field of zeros" if has_gap else "address string too short"
    ), ""


def ip(value: str | Network) -> Address:
    """The address of a text or of a prefix."""
    return Address(value.interface.ip if isinstance(value, Network) else _address(value))


def cidr(text: str) -> Network:
    """The prefix of a text."""
    from ipaddress import ip_interface  # noqa: PLC0415 - start-up time

    problem = "network address parse error during conversion from string: "
    try:
        interface = ip_interface(text if re.fullmatch(r"[^/%]+/(0|[1-9][0-9]*)", text, re.ASCII) else "")
    except ValueError:
        reason = f"netip.ParsePrefix({quoted(text)}): {_prefix_problem(text)}"
        raise ValueError(problem * 2 + reason) from None
    if getattr(interface.ip, "ipv4_mapped", None):
        raise ValueError(f"{problem}IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return Network(interface)


def contains_ip(network: Network, address: str | Address) -> Value:
    """Whether an address is in the network."""
    if isinstance(address, Address):
        return address.address in network.interface.network
    return _address(address) in network.interface.network if parses(_address)(address) else NO_OVERLOAD


def contains_cidr(network: Network, other: str | Network) -> bool:
    """Whether a network is part of the network."""
    inner = other if isinstance(other, Network) else cidr(other)
    outer, part = network.interface.network, inner.interface.network
    return bool(outer.version == part.version and part.subnet_of(outer))


def masked(network: Network) -> Network:
    """The network with the address that all of its addresses begin with."""
    return cidr(str(network.interface.network))


ADDRESS_TESTS: dict[str, Callable[[Address], Value]] = {
    "isUnspecified": lambda ip: ip.address.is_unspecified,
    "isLoopback": lambda ip: ip.address.is_loopback,
    "isLinkLocalMulticast": lambda ip: re.match(r"224\.0\.0\.|ff.2:", str(ip.address)) is not None,
    "isLinkLocalUnicast": lambda ip: ip.address.is_link_local,
    "isGlobalUnicast": lambda ip: (
        not any(
            getattr(ip.address, f"is_{name}")
            for name in ("unspecified", "loopback", "multicast", "link_local")
        )
        and str(ip.address) != "255.255.255.255"
    ),
}


def url(text: str) -> URL:
    """The URL of a text: absolute, or a path."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - start-up time

    if problem := _url_problem(text):
        raise ValueError(f"URL parse error during conversion from string: parse {quoted(text)}: {problem}")
    return URL(text, urlsplit(text))


def _url_problem(text: str) -> str:
    """Go's words for why a text is no URL.

    Follows: Go 1.26, src/net/url/url.go, ParseRequestURI.
    """
    scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", text)
    rest = text[scheme.end() if scheme else 0 :].partition("?")[0]
    if re.search(r"[\x00-\x1f\x7f]", text):
        return "net/url: invalid control character in URL"
    if text.startswith(":"):
        return "missing protocol scheme"
    if not rest.startswith("/"):
        return "" if scheme or text == "*" else "invalid URI for request" if text else "empty url"
    authority, path = "", rest
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    is_strict = scheme is not None and scheme[0].lower() in ("http:", "https:")
    problem = _host_problem(authority.rpartition("@")[2], is_strict=is_strict)
    wrong = _BAD_ESCAPE.search(path)
    return problem or (f"invalid URL escape {quoted(wrong[0])}" if wrong else "")


_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}", re.DOTALL)
_BAD_HOST_ESCAPE = re.compile(r"%(?!25|[89a-fA-F][0-9a-fA-F]).{0,2}", re.DOTALL)


def _host_problem(host: str, *, is_strict: bool) -> str:
    """What is wrong with a host and its port; strict: only one colon may be in it."""
    is_literal = host.startswith("[")
    literal, closing, after = host.rpartition("]") if is_literal else ("", "", host)
    if "[" in host[1:]:
        return "invalid IP-literal"
    if is_literal and not closing:
        return "missing ']' in host"
    colon = after.find(":") if is_strict else after.rfind(":")
    port = after if is_literal else after[colon:] if colon >= 0 else ""
    if not re.fullmatch(r"(:[0-9]*)?", port, re.ASCII):
        return f"invalid port {quoted(port)} after host"
    if is_literal:
        address = literal[1:].replace("%25", "%", 1)
        problem = "" if parses(_any_address)(address) else f"invalid host: {_address_problem(address)}"
        return problem or ("" if ":" in address else "invalid IP-literal")
    if wrong := _BAD_HOST_ESCAPE.search(host):
        return f"invalid URL escape {quoted(wrong[0])}"
    wrong = re.search(r"[ \\^`{|}]", host)
    return f"invalid character {quoted(wrong[0])} in host name" if wrong else ""


def _query(value: URL) -> Value:
    """The parameters of a URL, without those that cannot be read."""
    from urllib.parse import parse_qs  # noqa: PLC0415 - start-up time

    parts = value.parts.query.split("&")
    query = "&".join(part for part in parts if ";" not in part and not _BAD_ESCAPE.search(part))
    return {key: tuple(items) for key, items in parse_qs(query, keep_blank_values=True).items()}


def _escaped_path(value: URL) -> str:
    from urllib.parse import quote, unquote_to_bytes  # noqa: PLC0415 - start-up time

    path = str(value.parts.path)
    if value.parts.scheme and not path.startswith("/"):
        return ""
    is_escaped = re.fullmatch(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]%/]*", path, re.ASCII)
    return path if is_escaped else quote(unquote_to_bytes(path), safe="$&+,/:;=@~")


def _host(value: URL) -> str:
    return str(value.parts.netloc.rpartition("@")[2])


_HOST = re.compile(r"(?:\[(?P<v6>.*)\]|(?P<name>[^:]*))(?::(?P<port>[0-9]*))?", re.DOTALL)


def _host_part(value: URL, *groups: str) -> str:
    match = _HOST.fullmatch(_host(value))
    return "".join(match[group] or "" for group in groups) if match else _host(value)


URL_PARTS: dict[str, Callable[[URL], Value]] = {
    "getScheme": lambda url: url.parts.scheme,
    "getHost": _host,
    "getHostname": lambda url: _host_part(url, "v6", "name"),
    "getPort": lambda url: _host_part(url, "port"),
    "getEscapedPath": _escaped_path,
    "getQuery": _query,
}


def _dns1035(text: str) -> list[str]:
    too_long = ["must be no more than 63 characters"] if len(text.encode()) > 63 else []
    shape = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
        "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
        "is '[a-z]([-a-z0-9]*[a-z0-9])?')"
    )
    return too_long if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", text, re.ASCII) else [*too_long, shape]


_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_NAMES = (
    ("dns1123Label", name_validation.dns1123_label_errors, 30),
    ("dns1123Subdomain", name_validation.dns1123_subdomain_errors, 60),
    ("dns1035Label", _dns1035, 30),
)
_SHAPES = {
    "uuid": (r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", "does not match the UUID format", 70),
    "byte": (r"(?!$)([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", "invalid base64", 84),
    "date": (_DATE, "invalid date", 71),
    "datetime": (_DATE + r"t([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d\d:\d\d)", "invalid datetime", 71),
}


def _prefix_errors(check: Callable[[str], list[str]], text: str) -> list[str]:
    return check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _shape_errors(pattern: str, problem: str, text: str) -> list[str]:
    is_valid = re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE) is not None
    if is_valid and pattern.startswith(_DATE):
        year, month, day = map(int, text[:10].split("-"))
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        is_valid = day <= (29 if is_leap else 28) if month == 2 else day < 31 or month not in (4, 6, 9, 11)
    return [] if is_valid else [problem]


def _uri_errors(text: str) -> list[str]:
    problem = _url_problem(text)
    return [f"parse {quoted(text)}: {problem}"] if problem else []


_FORMATS: tuple[tuple[str, Callable[[str], list[str]], int], ...] = (
    *_NAMES,
    *((f"{name}Prefix", partial(_prefix_errors, check), size) for name, check, size in _NAMES),
    ("qualifiedName", name_validation.label_key_errors, 60),
    ("labelValue", name_validation.label_value_errors, 40),
    ("uri", _uri_errors, 1103),
    *((name, partial(_shape_errors, *shape[:2]), shape[2]) for name, shape in _SHAPES.items()),
)
FORMATS = {name: Format(name, errors, size) for name, errors, size in _FORMATS}


def validate(named: Format, text: str) -> Maybe:
    """What is wrong with a text by the format, or none."""
    problems = tuple(named.errors(text))
    return Maybe(problems) if problems else NONE
