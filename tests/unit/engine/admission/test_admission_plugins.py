import pytest

from nodewright.engine.admission.admission_plugins import (
    DefaultingWarning,
    PluginRefusal,
    PriorityMismatch,
    RuntimeClassMismatch,
    UnknownPriorityClass,
    UnknownRuntimeClass,
    defaulted_pod,
)
from nodewright.model.kubernetes.cluster_objects import (
    Overhead,
    PriorityClass,
    RuntimeClass,
    RuntimeScheduling,
)
from nodewright.model.kubernetes.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    Toleration,
    merged_tolerations,
)
from nodewright.model.kubernetes.pod_spec_fields import ContainerPort
from nodewright.model.values.quantity import Quantity

HIGH = PriorityClass(metadata=ObjectMeta(name="high"), value=1000, preemption_policy="Never")
USUAL = PriorityClass(metadata=ObjectMeta(name="usual"), value=10, global_default=True)
ALSO_USUAL = PriorityClass(metadata=ObjectMeta(name="also-usual"), value=5, global_default=True)

# Class and priority that are written, the classes there are; class, priority and remark that come of it.
PRIORITIES: list[
    tuple[str, int | None, tuple[PriorityClass, ...], tuple[str, int], DefaultingWarning | None]
] = [
    ("", None, (), ("", 0), None),
    ("", 0, (), ("", 0), None),
    ("", 7, (), ("", 7), PriorityMismatch(7, 0)),
    ("", None, (HIGH, USUAL), ("usual", 10), None),
    ("", None, (USUAL, ALSO_USUAL), ("also-usual", 5), None),
    ("", 3, (USUAL,), ("", 3), PriorityMismatch(3, 10)),
    ("high", None, (HIGH, USUAL), ("high", 1000), None),
    ("high", 1000, (HIGH,), ("high", 1000), None),
    ("high", 999, (HIGH,), ("high", 999), PriorityMismatch(999, 1000)),
    ("low", None, (HIGH, USUAL), ("low", 0), UnknownPriorityClass("low", 0)),
    ("low", 50, (HIGH,), ("low", 50), UnknownPriorityClass("low", 50)),
    ("system-node-critical", None, (), ("system-node-critical", 2_000_001_000), None),
    ("system-cluster-critical", 2_000_000_000, (), ("system-cluster-critical", 2_000_000_000), None),
]


@pytest.mark.parametrize(("name", "priority", "classes", "wanted", "remark"), PRIORITIES)
def test_priority_comes_of_the_class(
    name: str,
    priority: int | None,
    classes: tuple[PriorityClass, ...],
    wanted: tuple[str, int],
    remark: DefaultingWarning | None,
) -> None:
    after = defaulted_pod(Pod(spec=PodSpec(priority_class_name=name, priority=priority)), classes)
    assert (after.pod.spec.priority_class_name, after.pod.spec.priority) == wanted
    assert after.warnings == ((remark,) if remark else ())


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        (PodSpec(), "PreemptLowerPriority"),
        (PodSpec(priority_class_name="high"), "Never"),
        (PodSpec(preemption_policy="Never"), "Never"),
    ],
)
def test_whether_it_may_push_others_out_comes_of_the_class_too(spec: PodSpec, policy: str) -> None:
    assert defaulted_pod(Pod(spec=spec), (HIGH,)).pod.spec.preemption_policy == policy


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
    tolerations = defaulted_pod(Pod(spec=PodSpec(tolerations=own))).pod.spec.tolerations
    assert tolerations[: len(own)] == own
    assert [(toleration.key, toleration.toleration_seconds) for toleration in tolerations[len(own) :]] == [
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
    after = defaulted_pod(Pod(spec=spec)).pod.spec
    assert after.containers[1].ports == ()
    for each in (after.containers[0], *after.init_containers):
        assert [port.host_port for port in each.ports] == host_ports
        assert [port.protocol for port in each.ports] == ["TCP", "UDP"]


def runtime(name: str, *, cpu: str = "", zone: str = "", taint: str = "") -> RuntimeClass:
    scheduling = RuntimeScheduling(
        node_selector={"zone": zone} if zone else {},
        tolerations=(Toleration(key=taint, operator="Exists"),) if taint else (),
    )
    overhead = Overhead(pod_fixed={"cpu": Quantity.parse(cpu)}) if cpu else None
    return RuntimeClass(metadata=ObjectMeta(name=name), overhead=overhead, scheduling=scheduling)


VM = runtime("vm", cpu="250m", zone="a", taint="vm")
MISMATCHES = (
    RuntimeClassMismatch(
        "vm", "overhead", "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    ),
    RuntimeClassMismatch(
        "vm",
        "nodeSelector",
        "conflict: runtimeClass.scheduling.nodeSelector[zone] = a; pod.spec.nodeSelector[zone] = b",
    ),
)
# Class, overhead and zone that are written; overhead, zone and remarks that come of them.
RUNTIMES: list[tuple[str, str, str, tuple[str, str], tuple[DefaultingWarning, ...]]] = [
    ("", "", "", ("", ""), ()),
    ("vm", "", "", ("250m", "a"), ()),
    ("vm", "250m", "a", ("250m", "a"), ()),
    ("vm", "1", "b", ("1", "b"), MISMATCHES),
    ("bare", "", "b", ("", "b"), ()),
    ("bare", "1", "", ("1", ""), ()),
    ("gone", "", "", ("", ""), (UnknownRuntimeClass("gone"),)),
    ("gone", "1", "", ("1", ""), (UnknownRuntimeClass("gone"),)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cpu", "zone", "wanted", "remarks"), RUNTIMES)
def test_overhead_and_nodes_come_of_the_runtime_class(
    name: str, cpu: str, zone: str, wanted: tuple[str, str], remarks: tuple[DefaultingWarning, ...]
) -> None:
    written = PodSpec(
        runtime_class_name=name or None,
        overhead={"cpu": Quantity.parse(cpu)} if cpu else None,
        node_selector={"zone": zone} if zone else {},
    )
    after = defaulted_pod(Pod(spec=written), runtimes=(runtime("bare"), VM))
    spec = after.pod.spec
    assert (str((spec.overhead or {}).get("cpu", "")), spec.node_selector.get("zone", "")) == wanted
    assert after.warnings == remarks
    assert ("vm" in [toleration.key for toleration in spec.tolerations]) is (name == "vm")


SPOT = Toleration(key="spot", operator="Exists")
MERGES = [
    ((SPOT,), (SPOT,), (SPOT,)),
    ((SPOT,), (Toleration(operator="Exists"),), (Toleration(operator="Exists"),)),
    ((Toleration(key="spot", operator="Equal", value="a"),), (SPOT,), (SPOT,)),
    ((Toleration(key="spot", value="a"),), (SPOT,), (SPOT,)),
    ((SPOT,), (Toleration(key="spot", value="a"),), (SPOT,)),
    ((Toleration(key="spot", value="a"),), (Toleration(key="spot", operator="Equal", value="a"),),
     (Toleration(key="spot", value="a"),)),
]  # fmt: skip


# Answers of an API server; it asks itself for a class that it has not in its cache.
@pytest.mark.parametrize(
    ("name", "error", "is_internal"),
    [
        ("a b", 'pod rejected: RuntimeClass "a b" not found', False),
        ("a..b", 'pod rejected: RuntimeClass "a..b" not found', False),
        ("a/b", "invalid resource name \"a/b\": [may not contain '/']", True),
        ("%2f/", "invalid resource name \"%2f/\": [may not contain '/' may not contain '%']", True),
        ("..", "invalid resource name \"..\": [may not be '..']", True),
        ("", "resource name may not be empty", True),
    ],
)
def test_runtime_classes_with_impossible_names_are_refused(name: str, error: str, is_internal: bool) -> None:
    refusal = defaulted_pod(Pod(spec=PodSpec(runtime_class_name=name))).refusal
    assert refusal == PluginRefusal(error=error, is_internal=is_internal)


@pytest.mark.parametrize(("own", "of_class", "wanted"), MERGES)
def test_tolerations_of_a_runtime_class_are_merged(
    own: tuple[Toleration, ...], of_class: tuple[Toleration, ...], wanted: tuple[Toleration, ...]
) -> None:
    assert merged_tolerations(own, of_class) == wanted
