"""The nodes that Karpenter would make of its NodePools, EC2NodeClasses and NodeClaims."""

from typing import Any

import pytest

from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.karpenter_nodes import Requirement
from nodewright.documents.profiles.planned_nodes import PlannedNodes
from nodewright.documents.profiles.planned_objects import PlannedNode

EXAMPLE = "examples/other-systems/karpenter.yaml"
MIB = 1 << 20


def planned(
    *values: dict[str, Any], existing: tuple[str, ...] = ()
) -> tuple[list[PlannedNode], PlannedNodes]:
    objects = PlannedNodes()
    for value in values:
        assert objects.add(value, ObjectLocation("nodes.yaml", b"", 1, 1), "nodes.yaml:1")
    return list(objects.nodes(existing)), objects


def pool(*requirements: tuple[str, str, list[str]], **spec: Any) -> dict[str, Any]:
    listed = [{"key": key, "operator": operator, "values": values} for key, operator, values in requirements]
    template = {"requirements": listed, "nodeClassRef": {"kind": "EC2NodeClass", "name": "a"}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {"template": {"spec": template}, **spec},
    }


def node_class(family: str = "AL2023", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "a"},
        "spec": {"amiFamily": family, **spec},
    }


def types(*names: str) -> tuple[str, str, list[str]]:
    return ("node.kubernetes.io/instance-type", "In", list(names))


def aws(field: str, *values: str, operator: str = "In") -> tuple[str, str, list[str]]:
    return (f"karpenter.k8s.aws/instance-{field}", operator, list(values))


def test_the_example_has_a_node_of_each_instance_type_that_is_known() -> None:
    documents = parse_documents(read_file(EXAMPLE).content, EXAMPLE)
    nodes, objects = planned(*(document.value for document in documents))
    assert [each.node["metadata"]["name"] for each in nodes] == ["batch-m5-large", "batch-m6idn-32xlarge"]
    labels = nodes[0].node["metadata"]["labels"]
    assert (labels["team"], labels["topology.kubernetes.io/zone"], labels["karpenter.sh/nodepool"]) == (
        "research",
        "eu-central-1a",
        "batch",
    )
    assert nodes[1].configuration is not None
    assert nodes[1].configuration["topologyManagerPolicy"] == "single-numa-node"
    assert objects.notes[0] == "NodePool batch: not in the catalogue, so not judged: c7i.8xlarge"


# Capacity of an m5.large: 8192Mi - ceil(7.5 %) = 7577Mi. Reserved: 11Mi for each of 29 addresses + 255Mi = 574Mi; a CPU's
# 6 % and the second's 1 % = 70m. Thresholds: 100Mi, and 10 % of the disk.
@pytest.mark.parametrize(
    ("family", "kubelet", "expected"),
    [
        ("AL2023", {}, {"cpu": "1930m", "memory_mib": 7577 - 574 - 100, "pods": "29"}),
        ("Bottlerocket", {}, {"cpu": "1930m", "memory_mib": 7577 - 574 - 100, "pods": "29"}),
        ("AL2023", {"maxPods": 110}, {"cpu": "1930m", "memory_mib": 7577 - 574 - 100, "pods": "110"}),
        ("Bottlerocket", {"maxPods": 110}, {"memory_mib": 7577 - 11 * 110 - 255 - 100, "pods": "110"}),
        ("AL2023", {"podsPerCore": 10}, {"pods": "20"}),
        ("Bottlerocket", {"podsPerCore": 10}, {"pods": "29"}),
        ("AL2023", {"kubeReserved": {"cpu": "500m", "memory": "1Gi"}}, {"cpu": "1500m", "memory_mib": 6453}),
        ("AL2023", {"systemReserved": {"cpu": "30m"}}, {"cpu": "1900m", "memory_mib": 6903}),
        ("AL2023", {"evictionHard": {"memory.available": "100%"}}, {"memory_mib": 7577 - 574}),
    ],
)
def test_allocatable_is_what_karpenter_computes_for_the_family(
    family: str, kubelet: dict[str, Any], expected: dict[str, Any]
) -> None:
    (node,), _ = planned(pool(types("m5.large")), node_class(family, kubelet=kubelet))
    allocatable = node.node["status"]["allocatable"]
    for name, amount in expected.items():
        if name == "memory_mib":
            assert allocatable["memory"] == f"{amount}Mi"
        else:
            assert allocatable[name] == amount
    assert (node.node["status"]["capacity"]["memory"], node.shape) == ("7577Mi", "m5.large")


@pytest.mark.parametrize(
    ("spec", "disk"),
    [
        ({}, "20Gi"),
        ({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "80Gi"}}]}, "80Gi"),
        ({"blockDeviceMappings": [{"deviceName": "/dev/xvdz", "ebs": {"volumeSize": "80Gi"}}]}, "20Gi"),
        (
            {"blockDeviceMappings": [{"deviceName": "/x", "rootVolume": True, "ebs": {"volumeSize": "9Gi"}}]},
            "9Gi",
        ),
        ({"instanceStorePolicy": "RAID0"}, None),
    ],
)
def test_the_disk_is_the_one_of_the_class(spec: dict[str, Any], disk: str | None) -> None:
    (node,), _ = planned(pool(types("m5.large")), node_class(**spec))
    assert node.node["status"]["capacity"].get("ephemeral-storage") == disk


@pytest.mark.parametrize(
    ("requirement", "is_allowed"),
    [
        (aws("cpu", "2", "4"), True),
        (aws("cpu", "2", operator="NotIn"), False),
        (aws("cpu", "1", operator="Gt"), True),
        (aws("cpu", "2", operator="Gt"), False),
        (aws("cpu", "2", operator="Gte"), True),
        (aws("cpu", "2", operator="Lt"), False),
        (aws("memory", "8192", operator="Lte"), True),
        (aws("family", "m5"), True),
        (aws("category", "c", "r"), False),
        (aws("generation", "4", operator="Gt"), True),
        (aws("gpu-count", operator="DoesNotExist"), True),
        (aws("gpu-count", "0", operator="Gt"), False),
        (("kubernetes.io/arch", "In", ["arm64"]), False),
        (("topology.kubernetes.io/zone", "In", ["a", "b"]), True),
    ],
)
def test_requirements_select_instance_types(
    requirement: tuple[str, str, list[str]], *, is_allowed: bool
) -> None:
    nodes, _ = planned(pool(types("m5.large"), requirement), node_class())
    assert bool(nodes) is is_allowed


def test_cpus_and_memory_in_the_requirements_describe_a_machine_that_the_catalogue_lacks() -> None:
    size = (aws("cpu", "16"), aws("memory", "32768"))
    (node,), _ = planned(
        pool(types("c7i.4xlarge"), *size),
        node_class(kubelet={"maxPods": 50, "kubeReserved": {"memory": "1Gi"}}),
    )
    assert node.node["status"]["capacity"]["cpu"] == "16"
    assert (node.node["metadata"]["name"], node.shape) == ("p-c7i-4xlarge", "")
    nodes, objects = planned(pool(types("c7i.4xlarge"), *size), node_class())
    assert not nodes
    assert "for how many pods it has addresses is not known" in objects.notes[0]


def test_a_pool_without_instance_types_is_judged_by_the_catalogue_and_says_so() -> None:
    nodes, objects = planned(pool(aws("family", "m5")), node_class())
    assert [each.shape for each in nodes] == ["m5.large", "m5.xlarge", "m5.metal"]
    assert "its requirements name no instance type" in objects.notes[0]


def test_limits_and_labels_with_several_values_are_named() -> None:
    zone = ("topology.kubernetes.io/zone", "In", ["a", "b"])
    (node,), objects = planned(pool(types("m5.large", "m5.metal"), zone, limits={"cpu": "8"}), node_class())
    assert "topology.kubernetes.io/zone" not in node.node["metadata"]["labels"]
    assert "NodePool p: m5.metal has more cpu than the pool's limit" in objects.notes
    assert objects.notes[0].endswith(
        "labels with several possible values are left out: topology.kubernetes.io/zone"
    )


@pytest.mark.parametrize(
    ("objects", "note"),
    [
        ((pool(types("m5.large")),), "EC2NodeClass a is not among the files"),
        ((pool(types("m5.large")), node_class("Custom")), "an image of the family Custom"),
    ],
)
def test_what_is_not_known_is_named(objects: tuple[dict[str, Any], ...], note: str) -> None:
    nodes, read = planned(*objects)
    assert not nodes
    assert note in read.notes[0]


def claim(name: str, **status: Any) -> dict[str, Any]:
    labels = {"node.kubernetes.io/instance-type": "m5.large"}
    spec = {**pool(types("m5.large"))["spec"]["template"]["spec"]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def test_a_claim_has_the_amounts_that_karpenter_expects_until_its_node_exists() -> None:
    amounts = {"cpu": "2", "memory": "7577Mi", "pods": "29"}
    launched = claim("c-1", capacity=amounts, allocatable={**amounts, "cpu": "1930m"})
    registered = claim("c-2", capacity=amounts, allocatable=amounts, nodeName="ip-10-0-0-1")
    (node,), _ = planned(launched, registered, existing=("ip-10-0-0-1",))
    assert (node.node["metadata"]["name"], node.node["status"]["allocatable"]["cpu"]) == ("c-1", "1930m")
    (ordered,), _ = planned(claim("c-3"), node_class())
    assert ordered.node["metadata"]["name"] == "c-3-m5-large"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (pool(types("m5.large"), limits={"cpu": "many"}), "spec.limits"),
        (node_class(kubelet={"kubeReserved": {"cpu": "many"}}), "spec.kubelet.kubeReserved"),
        (
            node_class(kubelet={"evictionHard": {"memory.available": "x%"}}),
            "spec.kubelet.evictionHard[memory.available]",
        ),
        (node_class(kubelet={"maxPods": "x"}), "spec.kubelet.maxPods"),
    ],
)
def test_a_faulty_field_is_reported_with_its_path(value: dict[str, Any], path: str) -> None:
    rest = node_class() if value["kind"] == "NodePool" else pool(types("m5.large"))
    objects = PlannedNodes()
    for each in (value, rest):
        objects.add(each, ObjectLocation("nodes.yaml", b"", 1, 1), "")
    assert not list(objects.nodes(())) or value["kind"] == "NodePool"
    assert [fault.path.startswith(path) for fault in objects.faults] == [True]


def test_an_unknown_operator_or_bound_allows_nothing() -> None:
    assert not Requirement(key="k", operator="Gt", values=("x",)).allows("1")
    assert not Requirement(key="k", operator="Like", values=("1",)).allows("1")


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("evictionHard", {"memory.available": "nan%"}, "0% to 100%"),
        ("evictionHard", {"memory.available": "inf%"}, "0% to 100%"),
        ("evictionHard", {"nodefs.available": "-5%"}, "0% to 100%"),
        ("kubeReserved", {"memory": "-1Gi"}, "must not be negative"),
        ("systemReserved", {"cpu": "-1"}, "must not be negative"),
        ("maxPods", -1, ">= 0"),
        ("maxPods", 2**31, "<= 2147483647"),
        ("podsPerCore", -1, ">= 0"),
    ],
)
def test_amounts_of_a_class_that_no_kubelet_takes_are_faults(field: str, value: Any, rule: str) -> None:
    nodes, read = planned(pool(types("m5.large")), node_class(kubelet={field: value}))
    assert nodes == []
    assert any(rule in fault.rule and f"spec.kubelet.{field}" in fault.path for fault in read.faults)


@pytest.mark.parametrize("text", [HUGE, "1e400", "-3", "", "nan"])
def test_requirements_without_a_number_that_counts_allow_nothing(text: str) -> None:
    assert not Requirement(key="a", operator="Gt", values=(text,)).allows("5")
    assert not Requirement(key="a", operator="Lt", values=("5",)).allows(text)
