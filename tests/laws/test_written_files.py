"""What one command writes, every other one reads: profiles, exports, journals, scenarios and baselines of full nodes."""

import json
from collections.abc import Iterator
from typing import Any

import click
import msgspec
import pytest
from msgspec.structs import replace

from nodewright.cli.app import COMMANDS, load_command, run
from nodewright.documents.formats.decode import SchemaType, schema_type
from nodewright.documents.output.terminal import NO, YES
from nodewright.documents.profiles.node_export import (
    NodeExport,
    encode_node_export,
    node_export,
    read_node_export,
)
from nodewright.documents.profiles.node_profiles import profile_from_bytes
from nodewright.documents.profiles.profile_yaml import profile_document, profile_yaml, written_fields
from nodewright.model.kubernetes.node_profile import (
    ContainerAllocation,
    ImageFS,
    MemoryBlock,
    NodePart,
    NodeProfile,
    ReadSource,
    UnknownNodePart,
)
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import current_profile
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_pod


def full_profile() -> NodeProfile:
    """A node on which whole pods, their containers and init containers hold CPUs, memory and devices."""
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    policy = {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "featureGates": gates,
    }
    kubelet = {**STATIC_CPUS, **STATIC_MEMORY, **policy}
    profile = a_profile(cpus=8, devices={"v/gpu": "a@0 b@1 c"}, **kubelet)
    amounts = {"cpu": "4", "memory": "2Gi"}
    own = {"cpu": "2", "memory": "1Gi", "v/gpu": "1"}
    node = Node.from_profile(profile)
    for pod in (
        a_pod("whole", own, own, resources={"requests": amounts, "limits": amounts}),
        a_pod("alone", own, own, initContainers=[{"name": "i", "resources": {"limits": own}}]),
        a_pod(
            "debugged", {}, ephemeralContainers=[{"name": "d", "image": "a", "targetContainerName": "main"}]
        ),
    ):
        result = node.admit(pod)
        node = result.node
    assert len(node.pods) == 3
    assert any(
        allocation.container == ""
        for allocation in current_profile(profile, node.state).spec.allocations or ()
    )
    profile = current_profile(profile, node.state)
    spec = replace(
        profile.spec,
        gone_devices={"v/nic": ("x",)},
        not_judged=(UnknownNodePart(part=NodePart.CPUS),),
        sources=(ReadSource(name="Node"),),
        image_fs=ImageFS(),
        labels={"a": "b"},
        swap_bytes=1 << 30,
    )
    return replace(profile, metadata=ObjectMeta(name="full"), spec=spec)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("written")
    texts = {
        "NODE": profile_yaml(profile_document(full_profile())),
        "SCENARIO": json.dumps(
            {
                "apiVersion": "nodewright.dev/v1alpha1",
                "kind": "Scenario",
                "spec": {
                    "node": json.loads(
                        json.dumps(msgspec.to_builtins(profile_document(full_profile()), enc_hook=str))
                    ),
                    "events": [{"remove": "default/alone"}],
                },
            }
        ),
        "CONFIG": json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                **full_profile().spec.kubelet_configuration,
            }
        ),
        "POD": "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}",
    }
    for name, text in texts.items():
        (directory / f"{name.lower()}.yaml").write_text(text)
    (directory / "usage.csv").write_text("time,pod,cpu\n0,default/whole,1\n60,default/whole,1\n")
    return {name: str(directory / f"{name.lower()}.yaml") for name in texts} | {"TMP": str(directory)}


LINES = (
    "requests --node NODE -f POD",
    "admit --node NODE -f POD",
    "explain --node NODE -f POD",
    "preempt --node NODE -f POD",
    "evict --node NODE --available memory.available=1Gi",
    "cgroups --node NODE -f POD",
    "node show --node NODE",
    "fit --node NODE -f POD",
    "lend --node NODE --usage TMP/usage.csv",
    "lint --node NODE -f POD --fail-on never",
    "lint NODE --fail-on never",
    "replay SCENARIO --node NODE --journal TMP/journal",
    "replay TMP/journal",
    "rehearse --node NODE",
    "upgrade --node NODE --to 1.36 -f POD",
    "audit --cgroups none --root-dir examples/worker-3/kubelet --node NODE",
    "agent --dry-run --node NODE --config CONFIG",
    "lint POD --write-baseline TMP/baseline.json",
    "lint POD --baseline TMP/baseline.json",
    "fleet generate --nodes 2 --pods 3 --nodes-file TMP/nodes.csv --pods-file TMP/pods.csv",
    "fleet run --nodes TMP/nodes.csv --pods TMP/pods.csv",
    "fleet capacity --nodes TMP/nodes.csv --pods TMP/pods.csv --filename POD",
    "fleet minimise --nodes TMP/nodes.csv --pods TMP/pods.csv",
)
"""Each after the lines that write its files."""


def test_every_command_reads_what_the_others_write(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for line in LINES:
        words = line.split()
        for name, path in files.items():
            words = [word.replace(name, path, 1) if word.split("/")[0] == name else word for word in words]
        assert run(words) in (YES, NO), (line, capsys.readouterr().err)


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = load_command(name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", below) for sub, below in command.commands.items())
        else:
            yield name, command


def test_every_command_that_reads_a_node_is_tried() -> None:
    readers = {name for name, command in _commands() for param in command.params if "--node" in param.opts}
    # `node export` asks a running kubelet beside it.
    assert readers - {"node export"} == {
        name for name in readers if any(line.startswith(f"{name} ") and " --node " in line for line in LINES)
    }


def test_a_full_profile_is_read_as_the_same() -> None:
    profile = full_profile()
    assert profile_from_bytes(profile_yaml(profile_document(profile)).encode(), "n") == profile
    export = node_export(profile, generation=0, observed_time=Instant(0))
    assert read_node_export(encode_node_export(export)).digest == export.digest


@pytest.mark.parametrize(("name", "kind"), [("NodeProfile", NodeProfile), ("NodeExport", NodeExport)])
def test_a_required_field_is_always_written(name: str, kind: type[msgspec.Struct]) -> None:
    seen: set[type] = set()

    def parts(kind: Any) -> Iterator[Any]:
        yield kind
        for part in getattr(kind, "__args__", ()):
            yield from parts(part)

    def check(schema: SchemaType, kind: Any) -> None:
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or kind in seen or kind is Pod:
            return
        seen.add(kind)
        written = {encoded: default for _, encoded, default in written_fields(kind)}
        optional = {
            field.encode_name
            for field in msgspec.structs.fields(kind)
            if written[field.encode_name] == field.default is not msgspec.NODEFAULT
        }
        assert not optional & set(schema.required), kind
        for field in msgspec.structs.fields(kind):
            below = (schema.fields or {}).get(field.encode_name)
            if below is not None:
                for part in parts(field.type):
                    check(below.item or below, part)

    check(schema_type(name), kind)
    assert seen >= ({ContainerAllocation, MemoryBlock} if kind is NodeProfile else {NodeExport})
