"""Why a pod does not exist: the API server refuses it, so that no node sees it.

The API server's errors for requests that its admission plugins reject, and why a limit range forbids an object: facts with
their amounts, and the API server's errors.

Follows: v1.36, plugin/pkg/admission/limitranger/admission.go.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.reasons.fact import Fact, KubeletText
from nodewright.model.values.quantity import Quantity

FAILED_CREATE = "FailedCreate"
"""The reason of the events of controllers that cannot create their pods."""


class APIServerRefusal(Fact, frozen=True, kw_only=True):
    """The API server refuses the pod, its owner, or an object between the two.

    Follows: v1.36, pkg/controller/controller_utils.go, RealPodControl.createPods;
        pkg/controller/statefulset/stateful_pod_control.go, recordPodEvent.
    Departs: the text is the API server's or that of the controller's event, not the kubelet's.
    """

    status: str
    """The API server's status: `Forbidden`, `Invalid`, or `InternalError` where a plugin fails."""
    error: str
    """The API server's error."""
    pod: str
    """The pod's name."""
    owner_kind: str = ""
    """The kind of the object whose controller creates the pod; empty: the pod itself is applied."""
    owner: str = ""
    """The name of that object."""
    is_owner_refused: bool = False
    """Whether the object itself is refused, so that no controller tries to create the pod."""

    def kubelet(self) -> KubeletText:
        if not self.owner_kind or self.is_owner_refused:
            return KubeletText(self.status, self.error)
        if self.owner_kind == "StatefulSet":
            message = f"create Pod {self.pod} in StatefulSet {self.owner} failed error: {self.error}"
        else:
            message = f"Error creating: {self.error}"
        return KubeletText(FAILED_CREATE, message)

    def sentence(self) -> str:
        if not self.owner_kind:
            return f"the API server refuses the pod: {self.error}"
        if self.is_owner_refused:
            return f"the API server refuses the {self.owner_kind}, so it has no pods: {self.error}"
        return f"the API server refuses the pods of the {self.owner_kind}, so it has none: {self.error}"


class Bound(StrEnum):
    """The side on which a limit range bounds amounts."""

    MINIMUM = "minimum"
    MAXIMUM = "maximum"


class RequestOrLimit(StrEnum):
    """Which of the two amounts of a resource."""

    REQUEST = "request"
    LIMIT = "limit"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an item of a limit range applies to."""

    type: str
    """`Container`, `Pod` or `PersistentVolumeClaim`."""
    container: str = ""
    """The container's name; empty: the pod or claim as a whole."""
    init: bool = False
    """Whether it is an init container."""


class OutOfBounds(msgspec.Struct, frozen=True, kw_only=True):
    """A request or limit below the minimum or above the maximum."""

    subject: Subject
    resource: str
    bound: Bound
    enforced: Quantity
    figure: RequestOrLimit
    observed: Quantity

    def message(self) -> str:
        return (
            f"{self.bound} {self.resource} usage per {self.subject.type} is {self.enforced}, "
            f"but {self.figure} is {self.observed}"
        )


class NothingToBound(msgspec.Struct, frozen=True, kw_only=True):
    """A request or limit is missing that a minimum or maximum requires."""

    subject: Subject
    resource: str
    bound: Bound
    enforced: Quantity
    figure: RequestOrLimit

    def message(self) -> str:
        return (
            f"{self.bound} {self.resource} usage per {self.subject.type} is {self.enforced}.  "
            f"No {self.figure} is specified"
        )


class RatioTooLarge(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of limit to request is too large."""

    subject: Subject
    resource: str
    enforced: Quantity
    """The largest ratio allowed."""
    request: Quantity
    limit: Quantity
    ratio: float
    """Limit by request, as the API server computes it: in 64-bit floats."""

    def message(self) -> str:
        return (
            f"{self.resource} max limit to request ratio per {self.subject.type} is {self.enforced}, "
            f"but provided ratio is {self.ratio:.6f}"
        )


class NoRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of limit to request is bounded, and one of the two is missing or zero."""

    subject: Subject
    resource: str
    enforced: Quantity
    """The largest ratio allowed."""
    figure: RequestOrLimit
    """The one that is missing or zero; the request, if both are."""

    def message(self) -> str:
        return (
            f"{self.resource} max limit to request ratio per {self.subject.type} is {self.enforced}, "
            f"but no {self.figure} is specified or {self.figure} is 0"
        )


LimitReason: TypeAlias = OutOfBounds | NothingToBound | RatioTooLarge | NoRatio
"""Why the API server rejects an object because of a limit range; `message()` is its error."""


def limit_range_error(because: Iterable[LimitReason]) -> str:
    """The API server's error for all that one limit range forbids of an object; each text once.

    Follows: v1.36, apimachinery/pkg/util/errors/errors.go, aggregate.Error.
    """
    return aggregate_error(reason.message() for reason in because)


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
