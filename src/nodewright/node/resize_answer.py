"""All that can be said about a resize that somebody asks for: its outcome, how it is done, or what would let it through."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.core.requests import scheduler_usage
from nodewright.core.resize import RESIZABLE
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.reasons import InsufficientResource, Reason
from nodewright.model.resize_reasons import ResizeBeyondNode, StaticPolicyInTheWay
from nodewright.model.resource_names import CPU
from nodewright.node.actions import Action
from nodewright.node.changes import Amount, Change, PodLeaves, RequestsChanged, changed_pod
from nodewright.node.counterfactual import Suggestion
from nodewright.node.events import PodResized
from nodewright.node.resize_plan import ResizePlan, resize_plan
from nodewright.node.resizing import Outcome, Resize
from nodewright.node.state import NodeState
from nodewright.node.step import step
from nodewright.values.quantity import ZERO

_ATTEMPTS = 3
"""How often an amount is lessened: the API server counts the whole node, then the kubelet its room."""


class ResizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a resize that is asked for."""

    asked: Resize
    others: tuple[Resize, ...] = ()
    """Resizes of other pods that waited and were tried with it."""
    plan: ResizePlan | None = None
    """How it is done; None: it is not."""
    suggestions: tuple[Suggestion, ...] = ()
    """The smallest changes of their kind with which it would be done at once, each tried."""
    actions: tuple[Action, ...] = ()
    after: NodeState


def resize_answer(state: NodeState, written: Pod) -> ResizeAnswer:
    """What becomes of the resize of a pod that the node has, known by its uid."""
    done = step(state, PodResized(written))
    asked = next(one for one in done.resizes if one.pod.uid == written.uid)
    is_done = asked.outcome is Outcome.DONE
    return ResizeAnswer(
        asked=asked,
        others=tuple(one for one in done.resizes if one is not asked),
        plan=resize_plan(state, done.state, asked) if is_done else None,
        suggestions=() if is_done else tuple(_suggestions(state, asked)),
        actions=done.actions,
        after=done.state,
    )


def _suggestions(state: NodeState, asked: Resize) -> Iterator[Suggestion]:
    # Others that wait are another matter: this one is to be done whatever becomes of them.
    alone = replace(state, resizing={})
    less = _less(alone, asked)
    if less is not None:
        yield Suggestion(kind="less", change=less, placed_anew=0)
    short = [one.resource for one in asked.because if isinstance(one, InsufficientResource)]
    if asked.outcome is not Outcome.DEFERRED or not short:
        return
    for other in _by_size(alone, asked.pod.uid, short):
        if _is_done(alone.without_pod(other.uid), asked.pod):
            usage = {name: amount for name, amount in scheduler_usage(other).items() if amount}
            change = PodLeaves(pod=other, requests=usage)
            yield Suggestion(kind="pod leaves", change=change, placed_anew=0)
            return


def _by_size(state: NodeState, uid: str, resources: Sequence[str]) -> list[Pod]:
    """The other pods, those first that hold least of what is missing."""
    others = [other for key, other in state.pods.items() if key != uid]
    usage = {other.uid: scheduler_usage(other) for other in others}
    return sorted(
        others, key=lambda one: (*(usage[one.uid].get(name, 0) for name in resources), one.full_name)
    )


def _is_done(state: NodeState, desired: Pod) -> bool:
    return _tried(state, desired).outcome is Outcome.DONE


def _tried(state: NodeState, desired: Pod) -> Resize:
    found = step(state, PodResized(desired)).resizes
    return next(one for one in found if one.pod.uid == desired.uid)


def _less(state: NodeState, asked: Resize) -> Change | None:
    """The most that would be done at once of what is asked for; None: nothing of it."""
    pod, tried = asked.pod, asked
    for _ in range(_ATTEMPTS):
        amounts = _lessened(tried)
        if not amounts:
            return None
        pod = changed_pod(pod, RequestsChanged(amounts=amounts))
        tried = _tried(state, pod)
        if tried.outcome is Outcome.DONE:
            return RequestsChanged(amounts=_differences(pod, asked.pod)) if tried.changes else None
    return None


def _lessened(tried: Resize) -> tuple[Amount, ...]:
    """What is too much, as it would have to be to fit; nothing where no one container could give it up."""
    wants, has = _requests(tried.pod), _requests(tried.before)
    found = []
    for resource, missing in _missing(tried.because):
        growth = {name: amounts[resource] - has[name][resource] for name, amounts in wants.items()}
        name = max(growth, key=lambda each: growth[each])
        if growth[name] < missing:
            return ()
        was = wants[name][resource]
        found.append(Amount(container=name, resource=resource, was=was, now=was - missing))
    for reason in tried.because:
        if isinstance(reason, StaticPolicyInTheWay):
            resource = reason.resource
            found += [
                Amount(container=name, resource=resource, was=wants[name][resource], now=has[name][resource])
                for name in reason.containers
            ]
    return tuple(found)


def _missing(because: Sequence[Reason]) -> Iterator[tuple[str, int]]:
    """How much too much is asked for; resources that cannot be resized are left out."""
    for reason in because:
        if isinstance(reason, InsufficientResource) and reason.resource in RESIZABLE:
            yield reason.resource, reason.missing
        elif isinstance(reason, ResizeBeyondNode):
            yield from ((one.resource, one.requested - one.allocatable) for one in reason.excesses)


def _differences(pod: Pod, other: Pod) -> tuple[Amount, ...]:
    wants, asked = _requests(pod), _requests(other)
    return tuple(
        Amount(container=name, resource=resource, was=asked[name][resource], now=amounts[resource])
        for name, amounts in wants.items()
        for resource in RESIZABLE
        if amounts[resource] != asked[name][resource]
    )


def _requests(pod: Pod) -> Mapping[str, Mapping[str, int]]:
    """What is requested of each resource by each container, or by the pod level where it says so."""
    level = pod.spec.resources.requests if pod.spec.resources else {}
    found = {"": level} if any(name in level for name in RESIZABLE) else {}
    if not found:
        everybody = (*pod.spec.containers, *pod.spec.init_containers)
        found = {one.name: one.resources.requests for one in everybody}
    return {name: {each: _integer(amounts, each) for each in RESIZABLE} for name, amounts in found.items()}


def _integer(amounts: ResourceList, resource: str) -> int:
    amount = amounts.get(resource, ZERO)
    return amount.milli_value() if resource == CPU else amount.value()
