"""The Node object: what is registered, what is reported, and what changes of an existing object."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.agent.host.ports import RuntimeHandler
from nodewright.agent.member.node_object import (
    ATTACH_DETACH_ANNOTATION,
    PROVIDED_ADDRESS_ANNOTATION,
    NodeIdentity,
    NodeReadings,
    has_status_changed,
    image_names,
    initial_node,
    node_patch,
    node_status,
    reconciled_node,
    reported_annotations,
)
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Taint
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

STATE = AgentState(node=Node.from_profile(a_profile()).state)
NOW, LATER = (NodeReadings(now=Instant(seconds * 10**9)) for seconds in (100, 200))
IDENTITY = NodeIdentity(
    name="worker",
    hostname="worker",
    system_info=NodeSystemInfo(kubelet_version="v1.36.0", started_ns=0, kernel_version="6.1"),
    architecture="amd64",
    machine_id="m",
    addresses=("10.0.0.1",),
    kubelet_port=10250,
)


def conditions(status: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {condition["type"]: condition for condition in status["conditions"]}


def test_a_new_node_has_the_kubelets_labels_and_annotation() -> None:
    node = initial_node(replace(IDENTITY, labels={"disk": "fast", "kubernetes.io/hostname": "h"}), STATE, NOW)
    assert node["metadata"] == {
        "name": "worker",
        "labels": {
            "kubernetes.io/hostname": "h",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64",
            "disk": "fast",
        },
        "annotations": {ATTACH_DETACH_ANNOTATION: "true"},
    }
    assert node["spec"] == {}
    status = node["status"]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert status["addresses"] == [
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "Hostname", "address": "worker"},
    ]
    assert status["nodeInfo"]["kubeletVersion"] == "v1.36.0"
    assert status["nodeInfo"]["kernelVersion"] == "6.1"
    assert status["capacity"] == {
        name: str(amount) for name, amount in STATE.node.config.resources.capacity.items()
    }
    assert [condition["type"] for condition in status["conditions"]] == [
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "Ready",
    ]


def test_taints_provider_and_an_external_cloud_are_registered() -> None:
    identity = replace(
        IDENTITY,
        taints=(Taint(key="a", effect="NoSchedule"),),
        provider_id="cloud://1",
        is_cloud_external=True,
        is_address_configured=True,
        is_attach_detach_managed=False,
    )
    node = initial_node(identity, STATE, NOW)
    assert [taint["key"] for taint in node["spec"]["taints"]] == [
        "a",
        "node.cloudprovider.kubernetes.io/uninitialized",
    ]
    assert node["spec"]["providerID"] == "cloud://1"
    assert node["metadata"]["annotations"] == {PROVIDED_ADDRESS_ANNOTATION: "10.0.0.1"}
    unknown = node_status(replace(identity, is_address_configured=False), STATE, NOW, {})
    assert unknown["addresses"] == [{"type": "Hostname", "address": "worker"}]
    of_cloud = [{"type": "ExternalIP", "address": "1.2.3.4"}]
    assert node_status(identity, STATE, NOW, {"addresses": of_cloud})["addresses"] == of_cloud


def test_transition_times_stay_while_a_status_stays() -> None:
    before = node_status(IDENTITY, STATE, NOW, {})
    state = replace(STATE, node=replace(STATE.node, conditions=(NodeCondition.MEMORY_PRESSURE,)))
    after = conditions(node_status(IDENTITY, state, LATER, before))
    assert (after["MemoryPressure"]["status"], after["MemoryPressure"]["lastTransitionTime"]) == (
        "True",
        str(LATER.now),
    )
    assert after["Ready"]["lastTransitionTime"] == str(NOW.now)
    assert after["Ready"]["lastHeartbeatTime"] == str(LATER.now)


@pytest.mark.parametrize(
    ("errors", "shutdown", "message"),
    [
        (("runtime is down",), "", "runtime is down"),
        (("runtime is down",), "node is shutting down", "[runtime is down, node is shutting down]"),
        ((), "node is shutting down", "node is shutting down"),
    ],
)
def test_a_node_with_errors_is_not_ready(errors: tuple[str, ...], shutdown: str, message: str) -> None:
    state = replace(STATE, shutdown_reason=shutdown)
    ready = conditions(node_status(IDENTITY, state, replace(NOW, errors=errors), {}))["Ready"]
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "KubeletNotReady", message)


def test_conditions_and_fields_of_others_stay() -> None:
    before = {
        "conditions": [{"type": "NetworkUnavailable", "status": "False"}],
        "volumesAttached": [{"name": "v"}],
        "capacity": {"example.com/license": "3", "hugepages-3Mi": "0", "memory": "1"},
    }
    status = node_status(IDENTITY, STATE, NOW, before)
    assert status["conditions"][0] == {"type": "NetworkUnavailable", "status": "False"}
    assert status["volumesAttached"] == [{"name": "v"}]
    assert status["capacity"]["example.com/license"] == "3"
    assert "hugepages-3Mi" not in status["capacity"]


@pytest.mark.parametrize(
    ("source", "stage", "cpu", "pods"),
    [
        (PodSource.API, PodStage.ACTIVE, 500, 1),
        (PodSource.WORKLOAD, PodStage.TERMINATING, 500, 1),
        (PodSource.API, PodStage.TERMINATED, 0, 0),
        (PodSource.CLUSTER, PodStage.ACTIVE, 0, 0),
        (PodSource.FILE, PodStage.ACTIVE, 0, 0),
    ],
)
def test_pods_that_the_api_server_cannot_show_are_subtracted(
    source: PodSource, stage: PodStage, cpu: int, pods: int
) -> None:
    record = PodRecord(pod=a_pod("web", "500m/1Gi"), source=source, stage=stage, memory=MemoryState())
    allocatable = STATE.node.config.resources.allocatable
    status = node_status(IDENTITY, replace(STATE, pods={"web": record}), NOW, {})
    left = {name: status["allocatable"][name] for name in ("cpu", "pods")}
    expected = {
        "cpu": str(allocatable["cpu"] - _amount(f"{cpu}m")),
        "pods": str(allocatable["pods"] - _amount(str(pods))),
    }
    assert left == expected


def _amount(text: str) -> Any:
    return a_pod("x", {"cpu": text}).spec.containers[0].resources.requests["cpu"]


def test_an_existing_node_keeps_what_others_have_set() -> None:
    initial = initial_node(IDENTITY, STATE, NOW)
    initial["status"]["capacity"]["hugepages-2Mi"] = "4Mi"
    initial["status"]["allocatable"]["hugepages-2Mi"] = "4Mi"
    existing = {
        "metadata": {"name": "worker", "labels": {"disk": "fast", "kubernetes.io/arch": "arm64"}},
        "status": {"capacity": {"cpu": "1", "hugepages-1Gi": "1Gi"}, "allocatable": {}},
    }
    node = reconciled_node(existing, initial)
    assert node["metadata"]["labels"]["disk"] == "fast"
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "amd64"
    assert node["metadata"]["annotations"] == {ATTACH_DETACH_ANNOTATION: "true"}
    assert node["status"]["capacity"] == {"cpu": "1", "hugepages-2Mi": "4Mi"}
    assert node["status"]["allocatable"] == initial["status"]["allocatable"]
    unmanaged = initial_node(replace(IDENTITY, is_attach_detach_managed=False), STATE, NOW)
    assert reconciled_node(node, unmanaged)["metadata"]["annotations"] == {}
    assert node_patch(node, reconciled_node(node, initial)) == {}


def test_only_the_heartbeat_is_no_change() -> None:
    before = node_status(IDENTITY, STATE, NOW, {})
    assert not has_status_changed(before, node_status(IDENTITY, STATE, LATER, before))
    assert not has_status_changed({**before, "volumesAttached": None}, before)
    failed = node_status(IDENTITY, STATE, replace(LATER, errors=("x",)), before)
    assert has_status_changed(before, failed)


def test_an_amount_that_the_api_server_writes_in_its_own_way_is_no_change() -> None:
    ours = node_status(IDENTITY, STATE, NOW, {})
    stored = {**ours, "allocatable": {"cpu": "4", "ephemeral-storage": "483183820k"}}
    ours = {**ours, "allocatable": {"cpu": "4000m", "ephemeral-storage": "483183820000"}}
    assert not has_status_changed(stored, ours)
    assert has_status_changed(
        stored, {**ours, "allocatable": {"cpu": "3", "ephemeral-storage": "483183820k"}}
    )


def test_an_image_shows_five_names() -> None:
    assert image_names("abcdefg") == list("abcde")


def test_what_the_agent_alone_reports_does_not_stay_from_an_earlier_kubelet() -> None:
    before = {
        "volumesInUse": ["kubernetes.io/csi/x"],
        "volumesAttached": [{"name": "kubernetes.io/csi/x", "devicePath": ""}],
        "declaredFeatures": ["Old"],
        "runtimeHandlers": [{"features": {}}],
        "features": {"supplementalGroupsPolicy": True},
    }
    status = node_status(IDENTITY, STATE, NOW, before)
    assert before.keys() & status.keys() == {"volumesAttached"}
    assert node_patch({"status": before}, {"status": status})["status"]["volumesInUse"] is None


def test_features_and_handlers_are_those_of_runtime_and_agent() -> None:
    readings = replace(
        NOW,
        runtime_handlers=(RuntimeHandler(name="", has_user_namespaces=True), RuntimeHandler(name="kata")),
        has_supplemental_groups_policy=False,
    )
    status = node_status(replace(IDENTITY, declared_features=("A",)), STATE, readings, {})
    assert status["declaredFeatures"] == ["A"]
    assert status["features"] == {"supplementalGroupsPolicy": False}
    assert status["runtimeHandlers"] == [
        {"features": {"recursiveReadOnlyMounts": False, "userNamespaces": True}},
        {"name": "kata", "features": {"recursiveReadOnlyMounts": False, "userNamespaces": False}},
    ]


@pytest.mark.parametrize(
    ("changes", "annotation"),
    [
        ({"is_cloud_external": True, "is_address_configured": True}, "10.0.0.1"),
        ({"is_cloud_external": True}, None),
        ({"is_address_configured": True}, None),
    ],
)
def test_the_addresses_for_a_cloud_controller_follow_the_settings(
    changes: dict[str, Any], annotation: str | None
) -> None:
    identity = replace(IDENTITY, **changes)
    annotations = reported_annotations(identity, {PROVIDED_ADDRESS_ANNOTATION: "10.9.9.9", "other": "x"})
    assert annotations.get(PROVIDED_ADDRESS_ANNOTATION) == annotation
    assert annotations["other"] == "x"


def test_on_a_new_machine_extended_resources_are_zero_until_they_are_advertised() -> None:
    initial = initial_node(IDENTITY, STATE, NOW)
    amounts = {"cpu": "1", "example.com/gpu": "4", "hugepages-2Mi": "0"}
    existing = {"metadata": {}, "status": {"capacity": amounts, "allocatable": amounts}}
    for is_new, amount in ((True, "0"), (False, "4")):
        node = reconciled_node(existing, initial, is_new_machine=is_new)
        assert node["status"]["capacity"]["example.com/gpu"] == amount
        assert node["status"]["allocatable"]["example.com/gpu"] == amount
        assert node["status"]["capacity"]["cpu"] == "1"
