"""Names as Kubernetes allows them."""

import re

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_NAME, _LONGEST_SUBDOMAIN = 63, 253


def is_label_key(text: str) -> bool:
    """Whether the text can be the key of a label: a name, or a DNS subdomain, a slash and a name.

    Follows: v1.36, apimachinery/pkg/api/validate/content/kube.go, IsLabelKey.

    >>> is_label_key("example.com/gpu"), is_label_key("Example.com/gpu"), is_label_key("gpu_1")
    (True, False, True)
    """
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > _LONGEST_SUBDOMAIN or _SUBDOMAIN.fullmatch(prefix) is None):
        return False
    return len(name) <= _LONGEST_NAME and _LABEL_NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether the text can be the value of a label.

    Follows: v1.36, apimachinery/pkg/api/validate/content/kube.go, IsLabelValue.

    >>> is_label_value(""), is_label_value("a.b-c"), is_label_value("-1")
    (True, True, False)
    """
    return not text or (len(text) <= _LONGEST_NAME and _LABEL_NAME.fullmatch(text) is not None)
