"""Names as Kubernetes allows them, and the kinds of resource that a name can stand for."""

import re
from functools import lru_cache

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_NAME, _LONGEST_SUBDOMAIN = 63, 253
_NATIVE = "kubernetes.io/"


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


def is_native(resource: str) -> bool:
    """Whether the resource is Kubernetes' own: no domain, or one that ends in kubernetes.io.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, IsNativeResource.
    """
    return "/" not in resource or _NATIVE in resource


@lru_cache(maxsize=4096)
def is_extended(resource: str) -> bool:
    """Whether the resource is one that somebody added to Kubernetes, such as a device.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.

    >>> is_extended("example.com/gpu"), is_extended("cpu"), is_extended("node.kubernetes.io/x")
    (True, False, False)
    """
    if is_native(resource) or resource.startswith("requests."):
        return False
    return is_label_key(f"requests.{resource}")


@lru_cache(maxsize=4096)
def is_scalar(resource: str) -> bool:
    """Whether a node counts the resource in whole units, beside cpu, memory, ephemeral-storage and pods.

    Follows: v1.36, pkg/scheduler/util/utils.go, IsScalarResourceName.

    >>> [is_scalar(name) for name in ("hugepages-2Mi", "example.com/gpu", "gpu", "attachable-volumes-x")]
    [True, True, False, True]
    """
    return (
        resource.startswith(("hugepages-", "attachable-volumes-"))
        or _NATIVE in resource
        or is_extended(resource)
    )
