"""The rules for names and labels, each as the API server's messages about a text; none if it is sound."""

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"

_LABEL_RE = re.compile(_LABEL, re.ASCII)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN, re.ASCII)
_KEY_RE = re.compile(_KEY, re.ASCII)
_VALUE_RE = re.compile(_VALUE, re.ASCII)

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
_VALUE_RULE = f"a valid label must be an empty string or {_KEY_RULE.removeprefix('must ')}"
_EMPTY = "must be non-empty"


def _shape(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


_NO_LABEL = _shape(_LABEL_RULE, _LABEL, "my-name", "123-abc")
_NO_SUBDOMAIN = _shape(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com")
_NO_KEY = _shape(_KEY_RULE, _KEY, "MyName", "my.name", "123-abc")
_NO_VALUE = _shape(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345")


def label_rules(text: str) -> list[str]:
    """What keeps the text from being one part of a domain name, as containers' names are.

    Follows: v1.36, apimachinery/pkg/api/validate/content/dns.go, IsDNS1123Label.
    """
    rules = _too_long(text, 63)
    if not _LABEL_RE.fullmatch(text):
        if _SUBDOMAIN_RE.fullmatch(text):
            rules.append("must not contain dots")
        else:
            rules.append(_NO_LABEL)
    return rules


def subdomain_rules(text: str) -> list[str]:
    """What keeps the text from being a domain name, as most objects' names are.

    Follows: v1.36, apimachinery/pkg/api/validate/content/dns.go, IsDNS1123Subdomain.
    """
    rules = _too_long(text, 253)
    if not _SUBDOMAIN_RE.fullmatch(text):
        rules.append(_NO_SUBDOMAIN)
    return rules


def key_rules(text: str) -> list[str]:
    """What keeps the text from being a label key or the name of a resource.

    Follows: v1.36, apimachinery/pkg/api/validate/content/kube.go, IsLabelKey.
    """
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        return [
            f"a valid label key {_NO_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    rules: list[str] = []
    for prefix in prefixes:
        rules.extend(f"prefix part {rule}" for rule in (subdomain_rules(prefix) if prefix else [_EMPTY]))
    rules.extend(f"name part {rule}" for rule in (_too_long(name, 63) if name else [_EMPTY]))
    if not _KEY_RE.fullmatch(name):
        rules.append(f"name part {_NO_KEY}")
    return rules


def value_rules(text: str) -> list[str]:
    """What keeps the text from being the value of a label.

    Follows: v1.36, apimachinery/pkg/api/validate/content/kube.go, IsLabelValue.
    """
    rules = _too_long(text, 63)
    if not _VALUE_RE.fullmatch(text):
        rules.append(_NO_VALUE)
    return rules


def _too_long(text: str, most: int) -> list[str]:
    return [f"must be no more than {most} bytes"] if len(text.encode()) > most else []
