from nodewright.engine.core.allocatable import NodeResources, node_resources
from nodewright.model.hardware.machine_info import HugePages, MachineInfo
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.reasons.kubelet_start import over_reservation_message
from nodewright.model.releases.release import Release, applied_rules, release_warning
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node_report.report_parts import allocatable_table

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
    assert release_warning(applied_rules(Release.parse("v1.36.2"))) is None
    assert release_warning(applied_rules(Release.parse("1.37.0+k3s1"))) == (
        "Kubernetes 1.37.0+k3s1 has no rules of its own here: answers are those of 1.36"
    )
