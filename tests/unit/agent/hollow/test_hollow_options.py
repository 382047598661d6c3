"""The options of `nodewright hollow` as nodes and faults."""

from pathlib import Path

import pytest

from nodewright.agent.hollow.hollow_options import HOLLOW_LABEL, HollowOptions, PlannedNode, planned_nodes
from nodewright.documents.output.json_yaml import as_json
from nodewright.documents.profiles.profile_yaml import profile_document
from nodewright.model.errors import InputError
from nodewright.testing.nodes import a_profile


def planned(*nodes: str, **options: object) -> tuple[PlannedNode, ...]:
    return planned_nodes(HollowOptions(nodes=nodes, **options))  # type: ignore[arg-type] # as of a command line


def test_mixes_are_numbered_through_and_labels_are_templates(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(
        as_json(profile_document(a_profile(cpuManagerPolicy="static", reservedSystemCPUs="0"))), "utf-8"
    )
    nodes = planned(
        f"2*epyc-7742-2s-nps4,1*@{path}",
        "1*2x1x4x2",
        name="n{n}",
        node_labels=("topology.kubernetes.io/zone=z{n%2},rack=r{n}",),
        register_with_taints=("hollow=true:NoSchedule",),
    )
    assert [node.name for node in nodes] == ["n0", "n1", "n2", "n3"]
    labels = [node.profile.spec.labels for node in nodes]
    assert [each["topology.kubernetes.io/zone"] for each in labels] == ["z0", "z1", "z0", "z1"]
    assert labels[3]["rack"] == "r3"
    assert all(each[HOLLOW_LABEL] == "true" for each in labels)
    assert labels[1]["kubernetes.io/hostname"] == "n1"
    assert nodes[2].profile.spec.kubelet_configuration["cpuManagerPolicy"] == "static"
    assert nodes[0].taints[0].key == "hollow"


def test_configuration_and_release_are_those_of_the_options(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n", "utf-8"
    )
    (node,) = planned("1*2x1x4x2", config=path, release="1.34")
    assert node.profile.spec.kubelet_configuration["maxPods"] == 7
    assert node.profile.spec.kubernetes_version == "1.34"


def test_a_configuration_with_which_no_kubelet_starts_is_an_error_before_anything_is_made(
    tmp_path: Path,
) -> None:
    path = tmp_path / "kubelet.yaml"
    kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    path.write_text(f"{kind}cpuManagerPolicy: static\n", "utf-8")
    with pytest.raises(InputError, match=r"kubelet\.yaml"):
        planned("1*2x1x4x2", config=path)
    with pytest.raises(InputError, match=r"1\.2"):
        planned("1*2x1x4x2", release="1.2")


def test_faults_belong_to_the_nodes_whose_names_match() -> None:
    texts = ("2m:hollow-1*:reboot=5s", "1m:hollow-1:down=2m", "3m:*:restart=1.35", "4m:*:plugin-lost=a/b")
    nodes = planned("12*2x1x4x2", faults=texts)
    kinds = {node.name: [fault.kind for fault in node.faults] for node in nodes}
    assert kinds["hollow-0"] == ["restart", "plugin-lost"]
    assert kinds["hollow-1"] == ["down", "reboot", "restart", "plugin-lost"]
    assert kinds["hollow-11"] == ["reboot", "restart", "plugin-lost"]
    assert nodes[1].faults[0].down_s == 120


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nodes": ("epyc-7742-2s",)}, '--nodes: Invalid value: "epyc-7742-2s": must be COUNT*NODE'),
        ({"nodes": ("0*epyc-7742-2s",)}, "must be COUNT*NODE"),
        ({"nodes": ("20000*epyc-7742-2s",)}, "at most 16384 nodes"),
        ({"nodes": ("000001999999999*epyc-7742-2s",)}, "at most 16384 nodes"),
        ({"nodes": ("9" * 5000 + "*epyc-7742-2s",)}, "at most 16384 nodes"),
        ({"nodes": ("1*nosuch",)}, "nosuch"),
        ({"name": "node"}, "must name each node otherwise"),
        ({"name": "Node-{n}"}, '--name: Invalid value: "Node-{n}"'),
        ({"node_labels": ("a",)}, "must be KEY=VALUE"),
        ({"node_labels": ("a=b:{n}",)}, "a valid label must be"),
        ({"register_with_taints": ("a",)}, "must be KEY=VALUE:EFFECT"),
        ({"faults": ("1m:x:reboot",)}, "is the name of none of the nodes"),
        ({"faults": ("soon:*:reboot",)}, '--fault: Invalid value: "soon:*:reboot"'),
        ({"faults": ("1m:*:explode",)}, "must be MOMENT:NODES:FAULT"),
        ({"faults": ("1m:*:down",)}, "down needs a value"),
        ({"faults": ("1m:*:down=-1s",)}, "must not be negative"),
        ({"faults": ("1m:*:restart=nosuch",)}, "nosuch"),
    ],
)
def test_faults_of_the_options_are_named(options: dict[str, object], text: str) -> None:
    with pytest.raises(InputError) as caught:
        planned_nodes(HollowOptions(**{"nodes": ("2*2x1x4x2",), **options}))  # type: ignore[arg-type] # as above
    assert text in str(caught.value)


def test_faults_with_values_of_any_type_are_named(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.yaml"
    kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    path.write_text(f"{kind}evictionHard: {{memory.available: [1], nodefs.available: {{a: b}}}}\n", "utf-8")
    with pytest.raises(InputError) as caught:
        planned("1*2x1x4x2", "1*2x1x2x2", config=path)
    assert [fault.path for fault in caught.value.faults] == [
        "evictionHard[memory.available]",
        "evictionHard[nodefs.available]",
    ]


@pytest.mark.parametrize(("text", "factor"), [("1x", 1), ("10x", 10), ("0.5x", 0.5), ("2", 2)])
def test_a_speed_is_a_factor(text: str, factor: float) -> None:
    assert HollowOptions(nodes=(), speed=text).speed_factor == factor


@pytest.mark.parametrize("text", ["fast", "0x", "nan", "-1x", "1e9x"])
def test_another_speed_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--speed"):
        HollowOptions(nodes=(), speed=text).speed_factor  # noqa: B018 - the property raises
