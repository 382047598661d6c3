"""The options about the Node object, and what an agent remembers of it."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_bench import AgentBench

from nodewright.agent.assembly import runtime_setup
from nodewright.agent.assembly.agent_node import (
    NODE_OBJECT,
    SavedNodeObject,
    agent_node,
    configured_labels,
    configured_taints,
    node_addresses,
    saved_node_object,
)
from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.agent.devices.device_allocation import DeviceAllocator
from nodewright.agent.devices.protocols import DevicePlugins
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.cluster.tasks.timing import HostClock
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Taint

HEADER = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def settings(**options: Any) -> AgentSettings:
    return AgentSettings(**{"root_dir": None, "socket": None, **options})


def test_labels_and_taints_are_read_from_lists() -> None:
    assert configured_labels(settings(node_labels=("a=b,c=", "node.kubernetes.io/x=1"))) == {
        "a": "b",
        "c": "",
        "node.kubernetes.io/x": "1",
    }
    assert configured_taints(settings(register_with_taints=("k=v:NoSchedule,x:NoExecute",))) == (
        Taint(key="k", value="v", effect="NoSchedule"),
        Taint(key="x", effect="NoExecute"),
    )


@pytest.mark.parametrize(
    ("read", "options", "text"),
    [
        (configured_labels, {"node_labels": ("a",)}, '--node-labels: Invalid value: "a": must be KEY=VALUE'),
        (configured_labels, {"node_labels": ("x.kubernetes.io/a=b",)}, "are reserved"),
        (configured_labels, {"node_labels": ("a=b:c",)}, '"b:c": a valid label must be'),
        (configured_labels, {"node_labels": ("a b=c",)}, '"a b": name part must consist of'),
        (configured_labels, {"node_labels": (f"a={'x' * 64}",)}, "must be no more than 63"),
        (configured_taints, {"register_with_taints": ("a=b",)}, "must be KEY=VALUE:EFFECT"),
        (configured_taints, {"register_with_taints": ("a/b/c=d:NoSchedule",)}, "a valid label key must"),
        (configured_taints, {"register_with_taints": ("a=b=c:NoSchedule",)}, '"b=c": a valid label must be'),
        (node_addresses, {"node_ip": "none"}, "must be an IP address"),
        (node_addresses, {"node_ip": "127.0.0.1"}, "no loopback"),
        (node_addresses, {"node_ip": "10.0.0.1,10.0.0.2,10.0.0.3"}, "must be one address"),
    ],
)
def test_wrong_options_are_named_with_the_rule(read: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        read(settings(**options))


def test_addresses_are_in_their_order_and_an_unspecified_one_is_none() -> None:
    assert node_addresses(settings(node_ip="10.0.0.1,fd00::1")) == ("10.0.0.1", "fd00::1")
    assert node_addresses(settings(node_ip="::")) == ()
    assert node_addresses(settings()) == ()


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    assert saved_node_object(tmp_path) == SavedNodeObject()
    (tmp_path / NODE_OBJECT).write_text('{"labels": {"a": "b"}, "taints": [{"key": "k"}]}', "utf-8")
    assert saved_node_object(tmp_path) == SavedNodeObject({"a": "b"}, (Taint(key="k"),))
    (tmp_path / NODE_OBJECT).write_text("{", "utf-8")
    assert saved_node_object(tmp_path) == SavedNodeObject()


@pytest.mark.parametrize(
    ("written", "cgroup"),
    [
        ("cgroupRoot: /", "/kubepods"),
        ("cgroupRoot: /\ncgroupDriver: systemd", "/kubepods.slice"),
        ("cgroupRoot: /pods", "/pods"),
        ("maxPods: 10", "/nodewright"),
    ],
)
def test_where_a_configuration_names_the_root_the_agent_changes_the_cgroup_of_all_pods(
    tmp_path: Path, written: str, cgroup: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(HEADER + written, "utf-8")
    node = agent_node(settings(node="uma-4c", config=config, kubelet_defects="avoid", feature_gates=()))
    assert node.own_cgroup == cgroup


def test_the_root_needs_the_cgroup_of_all_pods(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"{HEADER}cgroupRoot: /\ncgroupsPerQOS: false\nenforceNodeAllocatable: [none]", "utf-8")
    with pytest.raises(InputError, match="must be a cgroup below the root"):
        agent_node(settings(node="uma-4c", config=config, kubelet_defects="avoid", feature_gates=()))


@pytest.mark.parametrize(
    ("options", "sees_host"),
    [({"is_kubelet": True}, False), ({"is_kubelet": False}, True), ({"endpoint": "unix:///c.sock"}, False)],
)
def test_the_containers_of_nodewright_kubelet_see_no_files_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any], *, sees_host: bool
) -> None:
    created: list[bool] = []

    class Allocator(DeviceAllocator):
        def __init__(self, plugins: DevicePlugins, *, sees_host: bool = False) -> None:
            created.append(sees_host)
            super().__init__(plugins, sees_host=sees_host)

    monkeypatch.setattr(runtime_setup, "DeviceAllocator", Allocator)
    bench = AgentBench()
    runtime_setup.create_plugin_endpoints(
        settings(root_dir=tmp_path, **options), bench.loop, EventRecorder(bench.loop.state, HostClock())
    )
    assert created == [sees_host]
