import pytest

from nodewright.core.arrival import (
    PriorityDiffers,
    Remark,
    RuntimeClassDiffers,
    UnknownPriorityClass,
    UnknownRuntimeClass,
    arrived,
)
from nodewright.model.objects import (
    Container,
    ContainerPort,
    ObjectMeta,
    Overhead,
    Pod,
    PodSpec,
    PriorityClass,
    RuntimeClass,
    RuntimeScheduling,
    Toleration,
)
from nodewright.values.quantity import Quantity

HIGH = PriorityClass(metadata=ObjectMeta(name="high"), value=1000, preemption_policy="Never")
USUAL = PriorityClass(metadata=ObjectMeta(name="usual"), value=10, global_default=True)
ALSO_USUAL = PriorityClass(metadata=ObjectMeta(name="also-usual"), value=5, global_default=True)

# Class and priority that are written, the classes there are; class, priority and remark that come of it.
PRIORITIES: list[tuple[str, int | None, tuple[PriorityClass, ...], tuple[str, int], Remark | None]] = [
    ("", None, (), ("", 0), None),
    ("", 0, (), ("", 0), None),
    ("", 7, (), ("", 7), PriorityDiffers(7, 0)),
    ("", None, (HIGH, USUAL), ("usual", 10), None),
    ("", None, (USUAL, ALSO_USUAL), ("also-usual", 5), None),
    ("", 3, (USUAL,), ("", 3), PriorityDiffers(3, 10)),
    ("high", None, (HIGH, USUAL), ("high", 1000), None),
    ("high", 1000, (HIGH,), ("high", 1000), None),
    ("high", 999, (HIGH,), ("high", 999), PriorityDiffers(999, 1000)),
    ("low", None, (HIGH, USUAL), ("low", 0), UnknownPriorityClass("low", 0)),
    ("low", 50, (HIGH,), ("low", 50), None),
    ("system-node-critical", None, (), ("system-node-critical", 2_000_001_000), None),
    ("system-cluster-critical", 2_000_000_000, (), ("system-cluster-critical", 2_000_000_000), None),
]


@pytest.mark.parametrize(("name", "priority", "classes", "wanted", "remark"), PRIORITIES)
def test_priority_comes_of_the_class(
    name: str,
    priority: int | None,
    classes: tuple[PriorityClass, ...],
    wanted: tuple[str, int],
    remark: Remark | None,
) -> None:
    after = arrived(Pod(spec=PodSpec(priority_class_name=name, priority=priority)), classes)
    assert (after.pod.spec.priority_class_name, after.pod.spec.priority) == wanted
    assert after.remarks == ((remark,) if remark else ())


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        (PodSpec(), "PreemptLowerPriority"),
        (PodSpec(priority_class_name="high"), "Never"),
        (PodSpec(preemption_policy="Never"), "Never"),
    ],
)
def test_whether_it_may_push_others_out_comes_of_the_class_too(spec: PodSpec, policy: str) -> None:
    assert arrived(Pod(spec=spec), (HIGH,)).pod.spec.preemption_policy == policy


NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ((), [NOT_READY, UNREACHABLE]),
        ((Toleration(key=NOT_READY, operator="Exists", effect="NoExecute"),), [UNREACHABLE]),
        ((Toleration(key=UNREACHABLE, operator="Exists"),), [NOT_READY]),
        ((Toleration(operator="Exists"),), []),
        ((Toleration(operator="Exists", effect="NoSchedule"),), [NOT_READY, UNREACHABLE]),
    ],
)
def test_every_pod_puts_up_with_a_silent_node_for_a_while(
    own: tuple[Toleration, ...], added: list[str]
) -> None:
    tolerations = arrived(Pod(spec=PodSpec(tolerations=own))).pod.spec.tolerations
    assert tolerations[: len(own)] == own
    assert [(one.key, one.toleration_seconds) for one in tolerations[len(own) :]] == [
        (key, 300) for key in added
    ]


@pytest.mark.parametrize(("host_network", "host_ports"), [(True, [80, 81]), (False, [0, 81])])
def test_on_the_hosts_network_every_port_is_the_hosts(host_network: bool, host_ports: list[int]) -> None:
    ports = (ContainerPort(container_port=80), ContainerPort(container_port=81, host_port=81, protocol="UDP"))
    container = Container(name="main", ports=ports)
    spec = PodSpec(
        containers=(container, Container(name="none")),
        init_containers=(container,),
        host_network=host_network,
    )
    after = arrived(Pod(spec=spec)).pod.spec
    assert after.containers[1].ports == ()
    for one in (after.containers[0], *after.init_containers):
        assert [port.host_port for port in one.ports] == host_ports
        assert [port.protocol for port in one.ports] == ["TCP", "UDP"]


def runtime(name: str, *, cpu: str = "", zone: str = "", taint: str = "") -> RuntimeClass:
    scheduling = RuntimeScheduling(
        node_selector={"zone": zone} if zone else {},
        tolerations=(Toleration(key=taint, operator="Exists"),) if taint else (),
    )
    overhead = Overhead(pod_fixed={"cpu": Quantity.parse(cpu)} if cpu else {})
    return RuntimeClass(metadata=ObjectMeta(name=name), overhead=overhead, scheduling=scheduling)


VM = runtime("vm", cpu="250m", zone="a", taint="vm")
# Class, overhead and zone that are written; overhead, zone and remarks that come of them.
RUNTIMES: list[tuple[str, str, str, tuple[str, str], tuple[Remark, ...]]] = [
    ("", "", "", ("", ""), ()),
    ("vm", "", "", ("250m", "a"), ()),
    ("vm", "250m", "a", ("250m", "a"), ()),
    ("vm", "1", "b", ("1", "b"), (RuntimeClassDiffers("vm", "overhead"), RuntimeClassDiffers("vm", "nodeSelector"))),
    ("bare", "", "b", ("", "b"), ()),
    ("bare", "1", "", ("1", ""), (RuntimeClassDiffers("bare", "overhead"),)),
    ("gone", "", "", ("", ""), (UnknownRuntimeClass("gone"),)),
    ("gone", "1", "", ("1", ""), ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cpu", "zone", "wanted", "remarks"), RUNTIMES)
def test_overhead_and_nodes_come_of_the_runtime_class(
    name: str, cpu: str, zone: str, wanted: tuple[str, str], remarks: tuple[Remark, ...]
) -> None:
    written = PodSpec(
        runtime_class_name=name or None,
        overhead={"cpu": Quantity.parse(cpu)} if cpu else {},
        node_selector={"zone": zone} if zone else {},
    )
    after = arrived(Pod(spec=written), runtimes=(runtime("bare"), VM))
    spec = after.pod.spec
    assert (str(spec.overhead.get("cpu", "")), spec.node_selector.get("zone", "")) == wanted
    assert after.remarks == remarks
    assert ("vm" in [one.key for one in spec.tolerations]) is (name == "vm")
