"""Files of a wrong kind, and values that no type can hold, are errors with file and rule: never an empty answer."""

import gzip
import json
import os
from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES
from nodewright.documents.profiles.state_files.pod_resource_state import _checksum
from tools.source import ROOT

E = f"{ROOT}/examples"
NODES, PODS = f"--nodes {E}/fleet/nodes.csv", f"--pods {E}/fleet/pods.csv"
CONFIG = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\n"
MANY = "9" * 4400
ROLLING = DEPLOYMENT + (
    "metadata: {name: a}\nspec: {strategy: {rollingUpdate: {maxUnavailable: '%s%%'}}, selector: {matchLabels: {a: b}},"
    " template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: x}]}}}\n"
)
CONFIG_READERS = (
    f"fleet run {NODES} {PODS} --kubelet-config @f",
    f"lint -f {E}/agent/web.yaml --kubelet-config @f",
    "agent --dry-run --config @f",
    f"admit --node vm-4 -f {E}/agent/web.yaml --kubelet-config @f",
    "node capture --catalogue vm-4 --kubelet-config @f",
    "node capture --catalogue vm-4 --config-dir @d",
)
POD_READERS = (
    f"audit --node vm-4 --kubelet-root {E}/worker-3/kubelet --pods @f --cgroups none",
    "node capture --catalogue vm-4 --node-name a --pods @f",
    f"rehearse --node vm-4 --kubelet-root {E}/worker-3/kubelet --pods @f",
)
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
CASES = (
    *((command, content, "") for command in CONFIG_READERS for content in ("", "42", "null", "list", "[]", "a: 1")),
    *((command, content, "expected pods") for command in POD_READERS[1:] for content in ("", "42", "null", "list")),
    (POD_READERS[1], "apiVersion: v1\nkind: ConfigMap\n", "expected pods"),
    (f"fleet run {NODES} {PODS} --probe @f", "", "has no pod"),
    (f"fleet run {NODES} {PODS} --probe @f", CONFIG_MAP, "has no pod, only 1 ConfigMap"),
    (f"fleet run --nodes @f {PODS}", CONFIG_MAP, "no nodes found, only 1 ConfigMap; nodes are objects of kind Node"),
    (f"fleet run {NODES} --pods @f", CONFIG_MAP, "no pods found, only 1 ConfigMap"),
    (f"fleet run {NODES} --pods {E}/fleet/nodes.yaml", "", "no pods found, only 9 Node"),
    (f"fleet capacity {NODES} -f @f", CONFIG_MAP, "skipped: 1 ConfigMap"),
    ("upgrade --to 1.37 --nodes @f", CONFIG_MAP, "no nodes found, only 1 ConfigMap"),
    (f"fleet run {NODES} {PODS} --kubelet-config @f", f"{CONFIG}evictionHard: []\n", "evictionHard"),
    (f"fleet run {NODES} {PODS} --kubelet-config @f", f"{CONFIG}evictionHard: text\n", "evictionHard"),
    (f"fleet run {NODES} --pods @f", DEPLOYMENT, "Deployment"),
    (f"fleet run {NODES} --pods @f", f"{DEPLOYMENT}metadata: 5\n", "metadata"),
    (f"fleet run --nodes @f.csv {PODS}", "name,cpu,memory\na,9223372036854775808,1Gi\n", "must be at most"),
    (f"fleet run --nodes @f.csv {PODS}", "name,cpu,memory\na,16,1e30\n", "must be at most"),
    (f"fleet run --nodes @f.csv {PODS}", "name,cpu,memory,hugepages-0\na,16,1Gi,1Gi\n", "name of huge pages"),
    (f"fleet run --nodes @f.csv {PODS}", "name,cpu,memory,hugepages-x\na,16,1Gi,1Gi\n", "name of huge pages"),
    ("lint -f @f", ROLLING % MANY, "must not be greater than 100%"),
    ("quota -f @f", ROLLING % MANY, "must not be greater than 100%"),
)  # fmt: skip


@pytest.mark.parametrize(("command", "content", "rule"), CASES)
def test_a_wrong_file_is_an_error_with_its_rule(
    tmp_path: Path, command: str, content: str, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d").mkdir()
    for path in (tmp_path / "f", tmp_path / "f.csv", tmp_path / "d" / "1.conf"):
        path.write_text(content)
    assert run(command.replace("@", f"{tmp_path}/").split()) == ERROR
    errors = capsys.readouterr().err
    assert "error: " in errors
    assert rule in errors


def test_drop_ins_count_without_a_kubelet_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "10-x.conf").write_text(f"{CONFIG}maxPods: 3\n")
    command = f"node capture --catalogue uma-4c --kubelet-config {E}/worker-3/kubelet/config.yaml --config-dir {tmp_path}"
    assert run(command.split()) == 0
    assert "maxPods: 3" in capsys.readouterr().out


@pytest.mark.parametrize("capacity", ["memory", "ephemeral-storage", "cpu"])
def test_negative_capacities_are_errors(
    tmp_path: Path, capacity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node = json.loads((Path(E) / "worker-3/node.json").read_text())
    node["status"]["capacity"][capacity] = "-1"
    (tmp_path / "node.json").write_text(json.dumps(node))
    command = f"node capture --configz {E}/worker-3/configz.json --node-object {tmp_path}/node.json --pods {E}/worker-3/pods.json --nrt {E}/worker-3/topology.yaml"
    assert run(command.split()) == ERROR
    assert f'status.capacity[{capacity}]: Invalid value: "-1": must be 0 to' in capsys.readouterr().err


@pytest.mark.parametrize("policies", [7, "Restricted", {"a": 1}, True])
def test_topology_policies_that_are_no_list_are_an_error(
    tmp_path: Path, policies: object, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = yaml.safe_load((Path(E) / "worker-3/topology.yaml").read_text())
    topology["topologyPolicies"] = policies
    topology["attributes"] = []
    (tmp_path / "topology.yaml").write_text(json.dumps(topology))
    command = f"node capture --configz {E}/worker-3/configz.json --node-object {E}/worker-3/node.json --pods {E}/worker-3/pods.json --nrt {tmp_path}/topology.yaml"
    assert run(command.split()) == ERROR
    assert "topologyPolicies: Invalid value: " in capsys.readouterr().err


@pytest.mark.parametrize("content", [MANY, f'{{"entries": {MANY}}}', f"[{MANY}]"])
def test_numbers_with_very_many_digits_in_a_state_file_are_a_refusal(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"data": content, "checksum": _checksum(content)}
    (tmp_path / "allocated_pods_state").write_text(json.dumps(state))
    assert run(f"rehearse --kubelet-root {tmp_path} --node vm-4".split()) == 3
    assert "allocated_pods_state" in capsys.readouterr().out


def test_a_page_of_a_fleet_without_placements_is_written(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("name,cpu,memory\na,1,1\n")
    command = f"fleet run --nodes {tmp_path}/n.csv {PODS} --html {tmp_path}/f.html"
    assert run(command.split()) == 3
    assert (tmp_path / "f.html").stat().st_size


@pytest.mark.parametrize("output", ["sarif", "json", "yaml", "junit"])
def test_a_file_name_that_is_no_utf_8_is_printed(
    tmp_path: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.yaml"
    manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: x}]}\n"
    Path(os.fsdecode(name)).write_text(manifest)
    assert run(["lint", "-f", str(tmp_path), "-o", output, "--fail-on", "never"]) == 0
    capsys.readouterr().out.encode()


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (f"evict --node vm-4 --usage {E}/eviction/summary.json -f @", "no objects passed to evict"),
        (f"fleet run {NODES} -f @", "@: no nodes or pods found"),
        (f"fleet run {NODES} --pods @", "@: no pods found"),
        (f"fleet capacity {NODES} -f @", "no objects passed to capacity"),
    ],
)
@pytest.mark.parametrize("content", ["", "# nothing\n---\n", "{apiVersion: v1, kind: List, items: []}"])
def test_empty_manifests_are_an_error_as_in_kubectl(
    tmp_path: Path, command: str, error: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text(content)
    assert run(command.replace("@", str(path)).split()) == ERROR
    assert capsys.readouterr() == ("", f"error: {error}\n".replace("@", str(path)))


def test_a_directory_of_nodes_has_nothing_that_never_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "node.yaml")
    assert run(["upgrade", "--from", "1.35", "--to", "1.36", "--nodes", str(tmp_path)]) == ERROR
    assert "node.yaml: cannot be read: is not a regular file" in capsys.readouterr().err


def test_a_cgroup_file_that_is_no_text_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kubepods").mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "kubepods/memory.max").write_bytes(b"\xff")
    command = f"cgroups -f {E}/agent/web.yaml --node vm-4 --diff {tmp_path}"
    assert run(command.split()) == NO
    assert "/kubepods/memory.max" in capsys.readouterr().out


def test_an_attribute_of_a_topology_with_a_name_that_is_none_is_passed_over(tmp_path: Path) -> None:
    topology = yaml.safe_load((Path(E) / "worker-3/topology.yaml").read_text())
    topology["attributes"] = [{"name": {}}]
    (tmp_path / "topology.yaml").write_text(json.dumps(topology))
    command = f"node capture --configz {E}/worker-3/configz.json --node-object {E}/worker-3/node.json --pods {E}/worker-3/pods.json --nrt {tmp_path}/topology.yaml"
    assert run(command.split()) == YES


@pytest.mark.parametrize("expect", ['{"start": "x"}', '"x"', "[]", "7", "null", '{"steps": 5}'])
def test_an_answer_of_a_wrong_kind_is_a_failed_vector(
    tmp_path: Path, expect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with gzip.open(ROOT / "tests/conformance/vectors/memory-manager.jsonl.gz", "rt") as lines:
        vector = json.loads(next(lines))
    (tmp_path / "v.jsonl").write_text(json.dumps({**vector, "expect": json.loads(expect)}))
    assert run(["verify", str(tmp_path / "v.jsonl")]) in (NO, ERROR)
    assert "Traceback" not in capsys.readouterr().err


_FAULTY_OBJECTS = """\
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, labels: {x: 1}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: b}, status: 5}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: c}, spec: {nodeAffinity: {required: [d]}, claimRef: 5}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: e}, status: [f]}
"""


@pytest.mark.parametrize("command", ["lint", "quota", "admit --node vm-4", "requests"])
def test_each_command_names_the_faults_of_volumes_and_statuses_once_and_alike(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(_FAULTY_OBJECTS)
    assert run([*command.split(), "-f", str(path)]) == ERROR
    faults = [
        line.partition(", ")[2]
        for line in capsys.readouterr().err.splitlines()
        if "status" in line or "Persistent" in line
    ]
    assert faults == [
        "PersistentVolumeClaim default/a: metadata.labels[x]: Invalid value: 1: must be a string, not a number: put it in quotes",
        "PersistentVolumeClaim default/b: status: Invalid value: 5: must be a mapping, not a number",
        "PersistentVolume c: spec.nodeAffinity.required: must be a mapping, not a list",
        "PersistentVolume c: spec.claimRef: Invalid value: 5: must be a mapping, not a number",
        "CronJob default/e: status: must be a mapping, not a list",
    ]  # fmt: skip
