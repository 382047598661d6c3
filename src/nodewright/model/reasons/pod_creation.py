"""Why a pod does not exist: the API server refuses it, so that no node sees it."""

from nodewright.model.reasons.fact import Fact, KubeletText

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
