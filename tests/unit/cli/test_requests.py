"""The command `nodewright requests`."""

import json
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, USAGE, YES

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - name: app
      image: registry.example/app:1
      resources: {requests: {memory: 1Gi}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "web.yaml"
    path.write_text(POD)
    return str(path)


def test_the_scores_are_for_this_machine_by_default(
    manifest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["requests", "-f", manifest, "--explain"]) == YES
    assert "the memory of this machine" in " ".join(capsys.readouterr().out.split())
    assert run(["requests", "-f", manifest, "--memory-capacity", "10Gi", "--explain"]) == YES
    assert "1000 - 1000 x 1Gi / 10Gi = 900" in capsys.readouterr().out


def test_a_node_of_the_catalogue_gives_its_memory(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "-f", manifest, "--node", "vm-4", "--explain"]) == YES
    assert "with 16Gi, the memory of node vm-4" in capsys.readouterr().out


def test_an_unknown_node_is_an_error(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "-f", manifest, "--node", "no-such-node"]) == ERROR
    assert "no-such-node" in capsys.readouterr().err


def test_objects_without_pods_are_counted_on_stderr(
    manifest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["requests", "-f", manifest, "-o", "name"]) == YES
    out, err = capsys.readouterr()
    assert (out, err) == ("pod/web\n", "skipped: 1 Service\n")


@pytest.mark.parametrize("output", ["json", "yaml", "wide"])
def test_every_format_has_the_amounts(manifest: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "-f", manifest, "-o", output, "-n", "shop"]) == YES
    out = capsys.readouterr().out
    assert "1Gi" in out
    assert "shop" in out
    if output == "json":
        assert json.loads(out)["skipped"] == {"Service": 1}


@pytest.mark.parametrize("amount", ["1GB2", "0", "-1", "1e30", ""])
def test_an_impossible_memory_is_an_error(
    manifest: str, amount: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["requests", "-f", manifest, "--memory-capacity", amount]) == ERROR
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")


def test_files_without_pods_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n")
    assert run(["requests", "-f", str(path)]) == ERROR
    assert capsys.readouterr().err == "skipped: 1 Service\nerror: no pods found\n"


def test_without_files_it_is_a_usage_error() -> None:
    assert run(["requests"]) == USAGE


def test_warnings_go_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.yaml"
    pod = POD.split("---", maxsplit=1)[0]
    path.write_text(f"{pod}---{pod}")
    assert run(["requests", "-f", str(path), "-o", "name"]) == YES
    assert "warning: default/web is defined more than once" in capsys.readouterr().err


LEVELS = str(Path(__file__).parents[3] / "examples" / "upgrade" / "manifests.yaml")


@pytest.mark.parametrize(
    ("options", "release", "qos"),
    [
        (["--memory-capacity", "64Gi", "--release", "v1.33.4"], "1.33", "BestEffort"),
        (["--memory-capacity", "64Gi"], "1.37", "Burstable"),
        (["--node", str(Path(LEVELS).with_name("worker-7.yaml"))], "1.33", "BestEffort"),
        (
            ["--node", str(Path(LEVELS).with_name("worker-7.yaml")), "--release", "1.34"],
            "1.34",
            "Burstable",
        ),
    ],
)
def test_requests_are_those_of_the_release(
    options: list[str], release: str, qos: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["requests", "-f", LEVELS, *options, "-o", "json"]) == YES
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["rulesOf"] == release
    assert report["items"][0]["qosClass"] == qos
    assert ("spec.resources of the pod is dropped" in printed.err) is (release == "1.33")


def test_fields_that_the_release_drops_are_errors_under_strict(capsys: pytest.CaptureFixture[str]) -> None:
    query = ["requests", "-f", LEVELS, "--memory-capacity", "1Gi", "--release", "1.33", "--strict"]
    assert run(query) == ERROR
    assert "the feature gate PodLevelResources is off in 1.33" in capsys.readouterr().err


def test_a_limit_of_some_containers_has_a_star(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = """{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
  initContainers: [{name: i, image: i, resources: {requests: {cpu: 2}}}],
  containers: [{name: c, image: i, resources: {limits: {cpu: %s}}}]}}"""
    path = tmp_path / "p.yaml"
    for limit, cell in (("1", "1*"), ("3", "3")):
        path.write_text(pod % limit)
        assert run(["requests", "-f", str(path)]) == YES
        out = capsys.readouterr().out
        assert out.splitlines()[1].split()[4] == cell
        assert ("* only of some containers" in out) is (cell == "1*")
