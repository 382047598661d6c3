"""Who would make way for a pod: the step that its arrival is, with all that can be said about its victims."""

from dataclasses import dataclass

from nodewright.core.preemption import Candidate, Missing, candidates_for, shortfalls
from nodewright.core.requests import is_critical
from nodewright.model.objects import Pod
from nodewright.model.reasons import NoVictimsSuffice
from nodewright.node.admission import judged
from nodewright.node.events import PodArrived
from nodewright.node.state import NodeState, as_counted
from nodewright.node.step import Step, step


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What the arrival of a pod would lead to, and whom it could push out."""

    pod: Pod
    critical: bool
    step: Step
    missing: tuple[Missing, ...] = ()
    """What has to be freed for it; empty where nobody is looked for."""
    candidates: tuple[Candidate, ...] = ()
    """The pods that it may push out, in the order in which the kubelet comes by them."""

    @property
    def unmet(self) -> tuple[tuple[str, int], ...]:
        """What all the candidates together would leave missing."""
        return next((one.unmet for one in self.step.because if isinstance(one, NoVictimsSuffice)), ())


def preview(state: NodeState, pod: Pod) -> Preview:
    """Who would make way for a pod that is assigned to the node now."""
    taken = step(state, PodArrived(pod))
    critical = is_critical(pod)
    found = Preview(pod=pod, critical=critical, step=taken)
    if taken.victims is not None:
        victims = taken.victims
        return Preview(
            pod=pod, critical=critical, step=taken, missing=victims.missing, candidates=victims.candidates
        )
    if not found.unmet:
        return found
    before, counted = state.without_pod(pod.uid), as_counted(pod, state.config)
    return Preview(
        pod=pod,
        critical=critical,
        step=taken,
        missing=shortfalls(judged(before, counted, taken.state.held).failures),
        candidates=candidates_for(counted, before.pods.values()),
    )
