"""How the API server refuses a request that its admission forbids."""

from collections.abc import Iterable

from nodewright.model.api_request import GroupResource
from nodewright.model.objects import ObjectMeta


def forbidden(resource: GroupResource, meta: ObjectMeta, why: str) -> str:
    """The whole text of a refusal.

    Follows: v1.36, apiserver/pkg/admission/errors.go, NewForbidden.

    >>> forbidden(GroupResource("pods"), ObjectMeta(generate_name="web-"), "no room")
    'pods "web-" is forbidden: no room'
    """
    return f'{resource} "{meta.name or meta.generate_name or "Unknown"}" is forbidden: {why}'


def aggregate(texts: Iterable[str]) -> str:
    """Several errors as one: each text once, in brackets if there are more than one.

    Follows: v1.36, apimachinery/pkg/util/errors/errors.go, aggregate.Error.

    >>> aggregate(["a", "b", "a"]), aggregate(["a", "a"])
    ('[a, b]', 'a')
    """
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"
