import pytest

from nodewright.documents.output.json_yaml import plain_value
from nodewright.engine.core.allocatable import NodeResources, node_resources
from nodewright.engine.node.pod_admission import unallocated_resources
from nodewright.model.hardware import HugePages, MachineInfo
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.kubelet_start import over_reservation_message
from nodewright.model.releases.release_table import Release, applied_rules, release_warning
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node import Node
from nodewright.predict.node_report.report_parts import (
    allocatable_table,
    placement_tables,
    pod_allocations,
    remaining_resources,
)
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import Amounts, a_guaranteed_pod, a_pod, container, pod

DEVICES = {"a.b/gpu": "gpu-0@0 gpu-1@1", "a.b/key": "key-0 key-1", "a.b/wide": "w@0,1"}
GPU: Amounts = {"cpu": "1", "memory": "1Gi", "a.b/gpu": 1, "a.b/key": 1}
ALIGNED = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "best-effort"}


def table_lines(node: Node, *pods: Pod, wide: bool = False) -> list[str]:
    answers = list(node.admit_all(pods))
    after = answers[-1].node.state if answers else node.state
    return placement_tables([(answer.pod, answer.placement) for answer in answers], after, wide=wide)


def test_allocations_and_free_resources_are_a_table_each() -> None:
    node = Node.from_profile(a_profile(devices=DEVICES, **ALIGNED))
    allocated, free = table_lines(node, a_guaranteed_pod("first", GPU), a_pod("web", "1/1Gi"))
    assert allocated == (
        "POD             CONTAINER   CPUS   NUMA   MEMORY     DEVICES\n"
        "default/first   main        1      0      1Gi on 0   a.b/gpu=gpu-0 a.b/key=key-0\n"
    )
    assert free == (
        "NUMA   SHARED CPUS   FREE MEMORY   FREE DEVICES\n"
        "0      0,2-3         2Gi           0 a.b/gpu\n"
        "1      4-7           4Gi           1 a.b/gpu\n"
        "-      -             -             1 a.b/key\n"
        "0-1    -             -             1 a.b/wide\n"
    )


def test_wide_adds_existing_pods_reserved_cpus_and_device_ids() -> None:
    node = Node.from_profile(a_profile(devices=DEVICES, pods=[a_guaranteed_pod("old", GPU)], **ALIGNED))
    allocated, free = table_lines(node, a_guaranteed_pod("new", GPU), wide=True)
    assert [line.split()[0] for line in allocated.splitlines()] == ["POD", "default/old", "default/new"]
    assert free.splitlines()[1] == "0      0,2-3         0          2Gi           a.b/gpu=-"
    assert free.splitlines()[3].split() == ["-", "-", "-", "-", "a.b/key=-"]


def test_numa_groups_and_hints_that_are_not_preferred_are_marked() -> None:
    allocated, free = table_lines(Node.from_profile(a_profile(**ALIGNED)), a_guaranteed_pod("large", "5/5Gi"))
    assert allocated.splitlines()[1].split(None, 2)[2] == "1,4-7   0-1    5Gi on 0-1"
    assert free.splitlines()[1:] == [
        "0      0,2-3         0             1",
        "1      -             2Gi           0",
    ]
    node = Node.from_profile(a_profile(**STATIC_CPUS, topologyManagerPolicy="best-effort"))
    allocated, _ = table_lines(
        node, a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi"), a_guaranteed_pod("c", "2/1Gi")
    )
    assert allocated.splitlines()[3].split(None, 2)[2] == "3,7    0-1 (not preferred)"


def test_pod_level_cpus_have_their_own_row() -> None:
    gates = {"PodLevelResourceManagers": True}
    node = Node.from_profile(a_profile(featureGates=gates, topologyManagerScope="pod", **ALIGNED))
    whole = pod(container("a", "1/1Gi", "1/1Gi"), container("b"), name="both", uid="u", whole="3/3Gi")
    (answer,) = node.admit_all([whole])
    allocated, _ = table_lines(node, whole)
    assert [line.split(None, 1)[1] for line in allocated.splitlines()[1:]] == [
        "(the whole pod)   1-3    -      3Gi on 0",
        "a                 1      0      1Gi on 0",
        "b                 2-3    0      2Gi on 0",
    ]
    assert answer.placement is not None
    document = plain_value(pod_allocations(answer.placement))
    assert document["podCPUs"] == "1-3"
    assert document["podMemory"] == [{"numaNodes": [0], "type": "memory", "size": 3 << 30}]


def test_without_static_policies_there_are_no_tables() -> None:
    node = Node.from_profile(a_profile())
    assert table_lines(node, a_guaranteed_pod("first", "1/1Gi")) == []
    assert unallocated_resources(node.state).shared_cpus is None
    document = plain_value(remaining_resources(node.state))
    assert list(document) == ["capacity", "allocatable", "remaining", "freeDevices"]


@pytest.mark.parametrize(
    ("policy", "hint"), [("none", {}), ("best-effort", {"numa": [0], "preferred": True})]
)
def test_the_document_is_valid_as_an_allocation(policy: str, hint: dict[str, object]) -> None:
    settings = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": policy}
    answer = Node.from_profile(a_profile(devices=DEVICES, **settings)).admit(a_guaranteed_pod("first", GPU))
    assert answer.placement is not None
    assert plain_value(pod_allocations(answer.placement)) == {
        "containers": [
            {
                "container": "main",
                "cpus": "1",
                **hint,
                "memory": [{"numaNodes": [0], "type": "memory", "size": 1 << 30}],
                "devices": {"a.b/gpu": ["gpu-0"], "a.b/key": ["key-0"]},
            }
        ]
    }
    assert plain_value(remaining_resources(answer.node.state))["sharedCPUs"] == "0,2-7"


def test_a_refused_pod_has_no_placement() -> None:
    answer = Node.from_profile(a_profile(**STATIC_CPUS)).admit(a_guaranteed_pod("huge", "100/1Gi"))
    assert answer.placement is None


GIB = 2**30


def worked_example() -> NodeResources:
    machine = MachineInfo(
        num_cores=4, memory_capacity=16 * GIB, hugepages=(HugePages(page_size=2048, num_pages=512),)
    )
    config = KubeletConfiguration(
        kube_reserved={"cpu": "100m", "memory": "1Gi"},
        system_reserved={"cpu": "4"},
        eviction_hard={"memory.available": "5%"},
    )
    return node_resources(machine, 50 * GIB, config, {"example.com/gpu": (2, 1)})


TABLE = """\
RESOURCE            CAPACITY   KUBE-RESERVED   SYSTEM-RESERVED   EVICTION-HARD   HUGE-PAGES   UNAVAILABLE   ALLOCATABLE
cpu                 4          100m            4                 -               -            -             0*
ephemeral-storage   50Gi       -               -                 -               -            -             50Gi
example.com/gpu     2          -               -                 -               -            1             1
hugepages-2Mi       1Gi        -               -                 -               -            -             1Gi
memory              16Gi       1Gi             -                 819.2Mi         1Gi          -             13.2Gi
pods                110        -               -                 -               -            -             110
"""


def test_the_columns_sum_up_to_allocatable() -> None:
    assert allocatable_table(worked_example().derivations) == TABLE


def test_over_reservation_has_the_kubelets_text_and_a_sentence() -> None:
    over = worked_example().over_reserved
    assert over_reservation_message(over) == (
        'invalid Node Allocatable configuration. Resource "cpu" has a reservation of '
        "{{4100 -3} {<nil>}  DecimalSI} but capacity of {{4000 -3} {<nil>}  DecimalSI}. "
        "Expected capacity >= reservation."
    )
    (cpu,) = over
    assert cpu.sentence() == ("cpu: 4100m reserved of 4, 100m too much; the kubelet does not start")


def test_a_reservation_beyond_64_bits_is_in_the_message() -> None:
    machine = MachineInfo(num_cores=1, memory_capacity=GIB)
    huge = Quantity.parse("1e30")
    resources = node_resources(machine, 0, KubeletConfiguration(kube_reserved={"memory": "1e30"}))
    assert f"has a reservation of {resources.over_reserved[0].reservation} but" in over_reservation_message(
        resources.over_reserved
    )
    assert resources.over_reserved[0].reservation > huge


def test_rules_of_another_release_are_reported() -> None:
    assert release_warning(applied_rules(Release.parse("v1.37.0"))) is None
    assert release_warning(applied_rules(Release.parse("1.38.0+k3s1"))) == (
        "Kubernetes 1.38.0+k3s1 has no rules of its own here: answers are those of 1.37"
    )
