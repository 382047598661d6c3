"""Suggestions let the pod in, and no smaller change of their kind does: compared with an exhaustive search."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.small_nodes import GPU, MIB, guaranteed_pods, profiles

from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.events import PodAdded, PodRecovered
from nodewright.engine.node.step import step
from nodewright.engine.node.what_if.changes import PodLeaves, RequestsChanged, SettingsChanged
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Container, Pod, ResourceRequirements
from nodewright.model.values.quantity import Quantity
from nodewright.predict.explain.explanation import suggested_changes
from nodewright.predict.node import Node

UNITS = {"cpu": 1000, "memory": MIB, GPU: 1}


@dataclass(frozen=True)
class Question:
    """A pod that a node refuses."""

    profile: NodeProfile
    node: Node
    pod: Pod

    @property
    def is_guaranteed(self) -> bool:
        return qos_class(self.pod) is QOSClass.GUARANTEED

    def answers(self) -> dict[str, Suggestion]:
        counterfactuals = suggested_changes(
            self.node.state, self.pod, step(self.node.state, PodAdded(with_defaults(self.pod)))
        )
        assert not counterfactuals.cut_short
        return {suggestion.kind: suggestion for suggestion in counterfactuals.suggestions}


@st.composite
def questions(draw: st.DrawFn) -> Question:
    profile = draw(profiles())
    node = Node.from_profile(profile)
    for at in range(draw(st.integers(0, 6))):
        node = node.admit(draw(guaranteed_pods(f"old{at}", largest=3))).node
    for pod in node.pods:
        if draw(st.booleans()):
            node = node.without_pod(pod.uid)
    pods = [draw(guaranteed_pods(f"new{at}")) for at in range(3)]
    refused = next((pod for pod in pods if not node.admit(pod).admitted), None)
    assume(refused is not None)
    assert refused is not None
    return Question(profile, node, refused)


# ---------------------------------------------------------------- requests


def asking_for(pod: Pod, now: dict[str, int], resource: str) -> Pod:
    """The pod whose containers of these names ask for these amounts, in the unit of the kubelet."""

    def other(one: Container) -> Container:
        if one.name not in now:
            return one
        requests, limits = dict(one.resources.requests), dict(one.resources.limits)
        amount = Quantity.parse(f"{now[one.name]}{'m' if resource == 'cpu' else ''}")
        if limits.get(resource) == requests[resource]:
            limits[resource] = amount
        requests[resource] = amount
        resources = ResourceRequirements(requests=requests, limits=limits)
        return msgspec.structs.replace(one, resources=resources)

    spec = pod.spec
    changed = msgspec.structs.replace(
        spec,
        containers=tuple(map(other, spec.containers)),
        init_containers=tuple(map(other, spec.init_containers)),
    )
    return msgspec.structs.replace(pod, spec=changed)


def asked_by(pod: Pod, resource: str) -> dict[str, int]:
    """What each container asks for, in the unit of the kubelet."""
    amounts = {
        container.name: container.resources.requests[resource]
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if resource in container.resources.requests
    }
    return {
        name: amount.milli_value() if resource == "cpu" else amount.value()
        for name, amount in amounts.items()
    }


def all_below(question: Question, resource: str) -> Iterator[tuple[int, Pod]]:
    """By how much one container asks for less, and the pod that it makes: all there are, the least first."""
    config = question.node.config.parts.kubelet
    may_be_pinned = config.cpu_manager_policy == "static" and question.is_guaranteed
    result = []
    for name, was in asked_by(question.pod, resource).items():
        unit = UNITS[resource]
        amounts = range((was - 1) // unit * unit, 0, -unit)
        if resource == "cpu" and not (may_be_pinned and was % 1000 == 0):
            # Of those that share CPUs, each thousandth counts: some will do, for less is never worse.
            each = [now for now in range(was - 1, 0, -1) if now % 1000 or not may_be_pinned]
            result += [(was - now, name, now) for now in (*each[:7], *each[7:-7:53], *each[-7:])]
        else:
            result += [(was - now, name, now) for now in amounts]
    for extent, name, now in sorted(result):
        yield extent, asking_for(question.pod, {name: now}, resource)


def check(question: Question, found: Suggestion | None, changes: Iterator[tuple[int, Pod]]) -> None:
    """The change lets the pod in, and none of those that are smaller does."""
    smallest = None
    if found is not None:
        assert isinstance(found.change, RequestsChanged)
        amounts = found.change.amounts
        smallest = sum(abs(amount.now - amount.was) for amount in amounts)
        now = {amount.container: amount.now for amount in amounts}
        assert question.node.admit(asking_for(question.pod, now, amounts[0].resource)).admitted
    for extent, pod in changes:
        if smallest is not None and extent >= smallest:
            break
        assert not question.node.admit(pod).admitted, (extent, smallest)


@given(questions())
def test_no_smaller_request_change_lets_the_pod_in(question: Question) -> None:
    answers = question.answers()
    for resource, kind in (("cpu", "fewer CPUs"), ("memory", "less memory"), (GPU, f"fewer {GPU}")):
        # Whole cores come first, and the same change is told once.
        same = answers.get("whole cores") if resource == "cpu" else None
        check(question, answers.get(kind) or same, all_below(question, resource))
    check_more_cpus(question, answers)
    check_whole_cores(question, answers.get("whole cores"))


def check_more_cpus(question: Question, found: dict[str, Suggestion]) -> None:
    """No fewer CPUs on top would do than those suggested."""
    cpus = question.node.config.parts.machine.num_cores
    pinned = question.node.config.parts.kubelet.cpu_manager_policy == "static" and question.is_guaranteed
    document = asked_by(question.pod, "cpu")
    every = sorted(
        (now * 1000 - was, name, now * 1000)
        for name, was in document.items()
        if pinned and was % 1000 == 0
        for now in range(was // 1000 + 1, cpus + 1)
    )
    more = ((extent, asking_for(question.pod, {name: now}, "cpu")) for extent, name, now in every)
    check(question, found.get("more CPUs") or found.get("whole cores"), more)


def check_whole_cores(question: Question, found: Suggestion | None) -> None:
    """No whole cores nearer to what is asked for would do."""
    smt = len(question.node.config.parts.machine.topology[0].cores[0].thread_ids)
    document = asked_by(question.pod, "cpu")
    whole = {name: was // 1000 for name, was in document.items() if was % 1000 == 0}
    odd = {name: count for name, count in whole.items() if count % smt}
    if found is None:
        options = question.node.config.parts.kubelet.cpu_manager_policy_options
        if "full-pcpus-only" not in options or not question.is_guaranteed:
            return
    ways = product(*([count - count % smt, count - count % smt + smt] for count in odd.values()))
    rounded = ({name: count * 1000 for name, count in zip(odd, way, strict=True)} for way in ways if all(way))
    every = sorted(
        (
            (sum(abs(now[name] - document[name]) for name in odd), sorted(now.items()))
            for now in rounded
            if odd
        ),
    )
    check(question, found, ((extent, asking_for(question.pod, dict(now), "cpu")) for extent, now in every))


# ---------------------------------------------------------------- the node


@given(questions())
def test_no_smaller_pod_frees_enough(question: Question) -> None:
    suggestion = question.answers().get("a pod that leaves")
    has = question.node.config.view.allocatable
    for other in sorted(question.node.pods, key=lambda pod: (share(pod, has), pod.full_name)):
        admitted = question.node.without_pod(other.uid).admit(question.pod).admitted
        if suggestion is not None:
            assert isinstance(suggestion.change, PodLeaves)
            if suggestion.change.pod.uid == other.uid:
                assert admitted
                break
        assert not admitted


def share(pod: Pod, has: Mapping[str, int]) -> Fraction:
    result = scheduler_requests(pod)
    return sum((Fraction(amount, has[name]) for name, amount in result.items() if has.get(name)), Fraction())


def placed_anew(question: Question, **settings: Any) -> tuple[Node | None, set[str]]:
    """The node under another configuration with the pods that it has, and those that it would not take."""
    spec = question.profile.spec
    configuration = {**spec.kubelet_configuration, **settings}
    try:
        node = Node.from_profile(replaced_in(question.profile, kubelet_configuration=configuration))
    except InputError:
        return None, set()
    lost = set()
    for pod in question.node.pods:
        answer = node.admit(pod)
        if not answer.admitted:
            lost.add(pod.uid)
        node = answer.node if answer.admitted else Node(step(node.state, PodRecovered(pod)).state)
    return node, lost


def replaced_in(profile: NodeProfile, **fields: Any) -> NodeProfile:
    return msgspec.structs.replace(profile, spec=msgspec.structs.replace(profile.spec, **fields))


POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def other_settings(question: Question) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each kind of setting with its other values, the nearest first."""
    given = question.profile.spec.kubelet_configuration
    policy, scope = given["topologyManagerPolicy"], given["topologyManagerScope"]
    if policy != "none":
        at = POLICIES.index(policy)
        near = sorted(range(4), key=lambda number: (abs(number - at), number))[1:]
        yield "topologyManagerPolicy", [{"topologyManagerPolicy": POLICIES[number]} for number in near]
        yield (
            "topologyManagerScope",
            [{"topologyManagerScope": "pod" if scope == "container" else "container"}],
        )
        closest = {"prefer-closest-numa-nodes": "true"}
        yield "prefer-closest-numa-nodes", [{"topologyManagerPolicyOptions": closest}]
    if given["cpuManagerPolicy"] == "static":
        options = given["cpuManagerPolicyOptions"]
        for name in ("full-pcpus-only", "distribute-cpus-across-numa", "strict-cpu-reservation"):
            now = {other: "true" for other in options if other != name}
            yield name, [{"cpuManagerPolicyOptions": now if name in options else {**now, name: "true"}}]
        yield "cpuManagerPolicy", [{"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {}}]
    if given["memoryManagerPolicy"] == "Static":
        yield (
            "memoryManagerPolicy",
            [{"memoryManagerPolicy": "None", "reservedMemory": given["reservedMemory"]}],
        )


@given(questions())
def test_settings_are_suggested_exactly_if_they_let_the_pod_in_and_lose_no_pod(question: Question) -> None:
    answers = question.answers()
    _, lost_anyway = placed_anew(question)
    refused_by_manager = question.node.admit(question.pod).reason not in {"OutOfcpu", "OutOfmemory"}
    for kind, values in other_settings(question) if refused_by_manager else ():
        working = []
        for value in values:
            node, lost = placed_anew(question, **value)
            if node is not None and lost <= lost_anyway and node.admit(question.pod).admitted:
                working.append(value)
        if not working:
            assert kind not in answers, kind
            continue
        change = answers[kind].change
        assert isinstance(change, SettingsChanged)
        first = change.settings[0]
        document = {first.name: first.now} if not first.option else {}
        assert document.items() <= working[0].items()


@given(questions())
def test_every_kind_is_suggested_or_ineffective_or_a_duplicate(question: Question) -> None:
    state, pod = question.node.state, question.pod
    taken = step(state, PodAdded(with_defaults(pod)))
    full = suggested_changes(state, pod, taken)
    cut = suggested_changes(state, pod, taken, budget=full.decisions // 2)
    assert not full.cut_short
    assert cut.decisions <= full.decisions
    assert {suggestion.kind for suggestion in cut.suggestions} <= {
        suggestion.kind for suggestion in full.suggestions
    }
    texts = {suggestion.kind for suggestion in full.suggestions} | set(full.ineffective)
    missing = {suggestion.kind for suggestion in full.suggestions} - {
        suggestion.kind for suggestion in cut.suggestions
    }
    assert missing <= set(cut.cut_short)
    assert set(cut.cut_short) | set(cut.ineffective) <= texts | set(cut.cut_short)
