"""Pods placed again under other settings of the managers: asking only the managers gives the same node."""

from collections.abc import Sequence

import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.small_nodes import GPU, a_numa_pod, guaranteed_pods, profiles

from nodewright.engine.node.events import PodRecovered
from nodewright.engine.node.managers.hint_providers import DeviceProvider, Holdings
from nodewright.engine.node.managers.manager_admission import align_pod
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.restart.restart_rehearsal import is_valid_configuration
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.what_if.changes import Setting, SettingsChanged, changed_parts
from nodewright.engine.node.what_if.counterfactuals import realigned, replayed
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.verdict import Granted
from nodewright.predict.node import Node


def setting(name: str, now: str, option: str = "") -> Setting:
    return msgspec.convert({"name": name, "option": option, "was": None, "now": now}, Setting)


SETTINGS = (
    *(
        setting("topologyManagerPolicy", policy)
        for policy in ("none", "best-effort", "restricted", "single-numa-node")
    ),
    *(setting("topologyManagerScope", scope) for scope in ("pod", "container")),
    setting("topologyManagerPolicyOptions", "true", "prefer-closest-numa-nodes"),
    *(
        setting("cpuManagerPolicyOptions", "true", option)
        for option in ("full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket")
    ),
    setting("memoryManagerPolicy", "None"),
    setting("maxPods", "3"),
)


@st.composite
def crowds(draw: st.DrawFn) -> list[Pod]:
    """Pods of which some ask no manager; together they may be more than the node has."""
    shared = ({"cpu": 100, "memory": 1}, {"cpu": 500, "memory": 2, GPU: 1})
    return [
        draw(guaranteed_pods(f"pod{at}", largest=3))
        if draw(st.booleans())
        else a_numa_pod(f"pod{at}", draw(st.sampled_from(shared)), init=(), limits=draw(st.booleans()))
        for at in range(draw(st.integers(0, 7)))
    ]


def placed_one_by_one(started: NodeState, pods: Sequence[Pod]) -> tuple[NodeState, frozenset[str]]:
    """The slow, obvious version: every handler decides about every pod."""
    state, rejected = started, frozenset[str]()
    for pod in pods:
        recovery = step(state, PodRecovered(pod))
        state = recovery.state
        if recovery.decision is Decision.REFUSED:
            rejected |= {pod.uid}
    return state, rejected


@given(profiles(), crowds(), st.sampled_from(SETTINGS))
def test_pods_that_are_realigned_have_the_places_that_every_handler_gives_them(
    profile: NodeProfile, pods: list[Pod], changed: Setting
) -> None:
    node = Node.from_profile(profile)
    parts = changed_parts(node.config.parts, SettingsChanged(settings=(changed,)))
    assume(is_valid_configuration(parts))
    empty, changed_empty = initial_node(node.config.parts), initial_node(parts)
    assume(isinstance(empty, Granted) and isinstance(changed_empty, Granted))
    assert isinstance(empty, Granted)
    assert isinstance(changed_empty, Granted)
    before = replayed(empty.value, pods)
    assert (before.node.state, before.node.rejected) == placed_one_by_one(empty.value, pods)
    fast = realigned(changed_empty.value, before)
    event("realigned" if fast is not None else "decided by all handlers")
    if fast is not None:
        state, rejected = placed_one_by_one(changed_empty.value, pods)
        assert fast.rejected == rejected
        assert fast.state == state


@given(profiles(), crowds())
def test_an_explanation_leaves_the_node_that_the_admission_leaves(
    profile: NodeProfile, pods: list[Pod]
) -> None:
    node = Node.from_profile(profile)
    for pod in pods:
        after = node.after(node.explain(pod, budget=0))
        node = node.admit(pod).node
        assert after == node


class DevicesAskedAlways(DeviceProvider, frozen=True):
    """The slow, obvious version of the device manager: it is asked about every pod."""

    def demand(self, held: Holdings, pod: Pod) -> Pod:
        del held
        return pod


@given(profiles(), crowds())
def test_a_pod_without_devices_is_aligned_as_if_the_device_manager_were_asked(
    profile: NodeProfile, pods: list[Pod]
) -> None:
    state = Node.from_profile(profile).state
    managers = state.config.managers
    providers = tuple(
        DevicesAskedAlways(provider.manager) if isinstance(provider, DeviceProvider) else provider
        for provider in managers.providers
    )
    for pod in pods:
        fast = align_pod(managers, state.held, pod, None)
        assert fast == align_pod(replace(managers, providers=providers), state.held, pod, None)
        state = step(state, PodRecovered(pod)).state
