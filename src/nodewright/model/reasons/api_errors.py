"""The API server's errors for requests that its admission plugins reject."""

from collections.abc import Iterable

from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.objects import ObjectMeta


def forbidden_error(resource: GroupResource, meta: ObjectMeta, reason: str) -> str:
    """The text of a `Forbidden` error.

    Follows: v1.36, apiserver/pkg/admission/errors.go, NewForbidden.

    >>> forbidden_error(GroupResource("pods"), ObjectMeta(generate_name="web-"), "no room")
    'pods "web-" is forbidden: no room'
    """
    return f'{resource} "{meta.name or meta.generate_name or "Unknown"}" is forbidden: {reason}'


def terminating_error(namespace: str) -> str:
    """The reason for which a new object is refused in a namespace that is being terminated.

    Follows: v1.36, apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go, Lifecycle.Admit, the first plugin.
    """
    return f"unable to create new content in namespace {namespace} because it is being terminated"


def aggregate_error(texts: Iterable[str]) -> str:
    """Several errors as one text: each once, in brackets if there is more than one.

    Follows: v1.36, apimachinery/pkg/util/errors/errors.go, aggregate.Error.

    >>> aggregate_error(["a", "b", "a"]), aggregate_error(["a", "a"])
    ('[a, b]', 'a')
    """
    distinct = list(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
