from nodewright.core.allocatable import NodeResources, node_resources
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.machine import Core, HugePages, MachineInfo, NUMANode
from nodewright.model.release import Release, rules_of
from nodewright.render.allocatable import (
    allocatable_document,
    allocatable_table,
    over_reservation,
    over_reservation_sentence,
    release_warning,
)
from nodewright.render.documents import plain
from nodewright.values.quantity import Quantity

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
memory              16Gi       1Gi             -                 858993472       1Gi          -             14173392064
pods                110        -               -                 -               -            -             110
"""


def test_the_table_takes_off_what_the_columns_say() -> None:
    assert allocatable_table(worked_example().derivations) == TABLE


def test_the_document_says_the_same() -> None:
    document = plain(allocatable_document(worked_example()))
    assert document["derivation"]["memory"] == {
        "capacity": "16Gi",
        "kubeReserved": "1Gi",
        "evictionHard": "858993472",
        "hugePages": "1Gi",
        "allocatable": "14173392064",
    }
    assert document["kubepodsLimits"]["memory"] == "15Gi"
    assert "reservedSystemCPUs" not in document


def test_reserved_cpus_are_in_the_document() -> None:
    cores = tuple(Core(core_id=cpu, thread_ids=(cpu,)) for cpu in range(4))
    machine = MachineInfo(num_cores=4, topology=(NUMANode(cores=cores),))
    found = node_resources(machine, 0, KubeletConfiguration(reserved_system_cpus="0-1"))
    assert plain(allocatable_document(found))["reservedSystemCPUs"] == "0-1"


def test_too_much_reserved_is_told_in_the_kubelets_words_and_plainly() -> None:
    over = worked_example().over_reserved
    assert over_reservation(over) == (
        'invalid Node Allocatable configuration. Resource "cpu" has a reservation of '
        "{{4100 -3} {<nil>}  DecimalSI} but capacity of {{4000 -3} {<nil>}  DecimalSI}. "
        "Expected capacity >= reservation."
    )
    (cpu,) = over
    assert over_reservation_sentence(cpu) == (
        "cpu: 4100m reserved of 4, 100m too much; the kubelet does not start"
    )


def test_amounts_beyond_64_bits_have_no_address_here() -> None:
    machine = MachineInfo(num_cores=1, memory_capacity=GIB)
    huge = Quantity.parse("1e30")
    found = node_resources(machine, 0, KubeletConfiguration(kube_reserved={"memory": "1e30"}))
    assert f"has a reservation of {found.over_reserved[0].reservation} but" in over_reservation(
        found.over_reserved
    )
    assert found.over_reserved[0].reservation > huge


def test_foreign_rules_are_told() -> None:
    assert release_warning(rules_of(Release.parse("v1.36.2"))) is None
    assert release_warning(rules_of(Release.parse("1.35.4+k3s1"))) == (
        "Kubernetes 1.35.4+k3s1 has no rules of its own here: answers are those of 1.36"
    )
