"""PodResources: what is told arrives as it was told."""

from hypothesis import given
from hypothesis import strategies as st

from nodewright.cluster.pod_resources import api_pb2 as v1
from nodewright.cluster.pod_resources.lister import (
    allocatable_from_message,
    allocatable_message,
    pod_from_message,
    pod_message,
)
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.pod_resources_api import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.values.idset import CPUSet

NAMES = st.text("abc/-.é", min_size=1, max_size=5)
NUMA = st.lists(st.integers(0, 63), max_size=3).map(tuple)
DEVICES = st.lists(
    st.builds(ContainerDevices, NAMES, st.lists(NAMES, max_size=3).map(tuple), st.none() | NUMA), max_size=3
).map(tuple)
MEMORY = st.lists(st.builds(MemoryBlock, NUMA, NAMES, st.integers(0, 2**64 - 1)), max_size=3).map(tuple)
CPUS = st.sets(st.integers(0, 300), max_size=5).map(CPUSet.from_ids)
CONTAINERS = st.builds(ContainerResources, name=NAMES, devices=DEVICES, cpus=CPUS, memory=MEMORY)
PODS = st.builds(
    PodResources, namespace=NAMES, name=NAMES, containers=st.lists(CONTAINERS, max_size=3).map(tuple)
)


@given(PODS)
def test_pods_come_back_from_the_wire_as_they_went(pod: PodResources) -> None:
    assert pod_from_message(v1.PodResources.FromString(pod_message(pod).SerializeToString())) == pod


@given(st.builds(AllocatableResources, devices=DEVICES, cpus=CPUS, memory=MEMORY))
def test_what_is_allocatable_comes_back_as_it_went(found: AllocatableResources) -> None:
    assert allocatable_from_message(allocatable_message(found)) == found
