"""Facts about evictions and preemption that the message of a pod's status proves.

Follows: v1.36, pkg/kubelet/eviction/helpers.go, evictionMessage; pkg/kubelet/preemption/preemption.go.
"""

from nodewright.model.reasons.container_evidence import StatusClue


class ConditionsThen(StatusClue, frozen=True, kw_only=True):
    """The node had these conditions at admission."""

    conditions: tuple[str, ...]

    def sentence(self) -> str:
        return f"the node had the condition {', '.join(self.conditions)}"

    def remedies(self) -> tuple[str, ...]:
        if self.conditions == ("MemoryPressure",):
            return (
                "a request of cpu or memory: under MemoryPressure alone the kubelet rejects BestEffort pods only",
            )
        return ("another node, until the condition ends: the kubelet admits critical pods only",)


class LowOnResource(StatusClue, frozen=True, kw_only=True):
    """The node was short of a resource.

    Units: amounts as the kubelet wrote them; empty: not in the message.
    """

    resource: str
    threshold: str = ""
    available: str = ""

    def sentence(self) -> str:
        if not (self.threshold or self.available):
            return f"the node was short of {self.resource}"
        return (
            f"the node was short of {self.resource}: {self.available} left, "
            f"less than the threshold of {self.threshold}"
        )


class MoreThanRequested(StatusClue, frozen=True, kw_only=True):
    """A container (or the pod: ``is_pod``) used more than its request.

    Units: amounts as the kubelet wrote them.
    """

    name: str
    is_pod: bool = False
    used: str
    requested: str
    resource: str

    def sentence(self) -> str:
        kind = "pod" if self.is_pod else "container"
        return f"{kind} {self.name} used {self.used} of {self.resource} and had requested {self.requested}"

    def remedies(self) -> tuple[str, ...]:
        return (
            (
                f"a {self.resource} request of at least {self.used} for {'the pod' if self.is_pod else f'container {self.name}'}: "
                f"the kubelet evicts pods that use more {self.resource} than they request before all others"
            ),
        )


class OverLimit(StatusClue, frozen=True, kw_only=True):
    """Local storage usage exceeded a limit; ``what`` is `container`, `pod` or `emptyDir`.

    Units: limit as the kubelet wrote it.
    """

    what: str
    name: str
    limit: str

    def sentence(self) -> str:
        match self.what:
            case "container":
                return f"container {self.name} used more local storage than its limit of {self.limit}"
            case "emptyDir":
                return f"emptyDir volume {self.name} held more than its limit of {self.limit}"
            case _:
                return f"the pod used more local storage than its containers' limits of {self.limit} together"

    def open_question(self) -> str:
        return "how much it used: the message has the limit only"

    def remedies(self) -> tuple[str, ...]:
        field = "sizeLimit" if self.what == "emptyDir" else "ephemeral-storage limit"
        return (f"a {field} above {self.limit}, or less data",)


class PreemptedForCriticalPod(StatusClue, frozen=True, kw_only=True):
    """The kubelet removed the pod to admit another.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, Preemptable.
    """

    def sentence(self) -> str:
        return "the node was short of what a critical pod requested, so the kubelet ended this one"

    def open_question(self) -> str:
        return "which pod it was and what was short: the events of the node around this time show it"

    def remedies(self) -> tuple[str, ...]:
        return (
            (
                "requests equal to limits on cpu and memory: the kubelet preempts BestEffort and Burstable pods before Guaranteed ones, "
                "and no critical pods of the same priority"
            ),
            "more headroom on the node for static and system pods, e.g. a larger systemReserved",
        )
