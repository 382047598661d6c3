"""The options that name manifests: files, URLs, kustomizations, selectors, alike for every command."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, USAGE, YES

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec: {containers: [{name: a, image: x}]}\n"


def names(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(["requests", *arguments, "-o", "name"]) == YES
    return [line.partition("/")[2] for line in capsys.readouterr().out.splitlines()]


def write(folder: Path, *pods: str) -> list[str]:
    for pod in pods:
        folder.joinpath(f"{pod}.yaml").write_text(POD % (pod, pod))
    return [str(folder / f"{pod}.yaml") for pod in pods]


def test_files_may_be_separated_by_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys, "-f", ",".join(write(tmp_path, "web", "db"))) == ["web", "db"]


def test_a_file_whose_name_has_a_comma_is_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert names(capsys, "-f", *write(tmp_path, "web,db".replace(",db", ""))) == ["web"]
    path = tmp_path / "a,b.yaml"
    path.write_text(POD % ("comma", "x"))
    assert names(capsys, "-f", str(path)) == ["comma"]


def test_a_selector_leaves_out_objects_and_counts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "web", "db")
    assert run(["requests", "-f", str(tmp_path), "-l", "app=web", "-o", "name"]) == YES
    shown = capsys.readouterr()
    assert shown.out == "pod/web\n"
    assert shown.err == "skipped: 1 object that -l does not select\n"


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            result = self.path == "/web.yaml"
            self.send_response(200 if result else 404)
            self.end_headers()
            self.wfile.write((POD % ("web", "web")).encode() if result else b"")

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of the base class
            del format, arguments

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_url_is_read(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys, "-f", f"{server}/web.yaml") == ["web"]


@pytest.mark.slow
def test_a_url_that_is_not_there_is_an_error(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "-f", f"{server}/nothing.yaml"]) == ERROR
    assert capsys.readouterr().err == f"error: {server}/nothing.yaml: cannot be read: Not Found\n"


def test_a_server_that_does_not_answer_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "-f", "http://127.0.0.1:1/web.yaml"]) == ERROR
    assert "Connection refused" in capsys.readouterr().err


def tool(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(("name", "command"), [("kubectl", "kustomize"), ("kustomize", "build")])
def test_a_kustomization_is_built_by_the_installed_tool(
    name: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (web,) = write(tmp_path, "web")
    tool(tmp_path, name, f'[ "$1 $2" = "{command} overlay" ] && /bin/cat {web}', monkeypatch)
    assert names(capsys, "-k", "overlay") == ["web"]


def test_the_error_of_the_tool_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool(tmp_path, "kubectl", "echo 'error: no kustomization' >&2; exit 1", monkeypatch)
    assert run(["lint", "-k", "overlay"]) == ERROR
    assert capsys.readouterr().err == f"error: build overlay: {tmp_path}/kubectl: error: no kustomization\n"


def test_without_a_tool_the_error_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["quota", "-k", "overlay"]) == ERROR
    assert capsys.readouterr().err == (
        "error: build overlay: neither kubectl nor kustomize is installed; build it elsewhere and pass the result to -f -\n"
    )


@pytest.mark.parametrize("command", ["requests", "admit", "lint", "quota", "preempt", "cgroups"])
def test_without_manifests_it_is_a_usage_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command]) == USAGE
    assert "Missing option '-f' / '--filename'" in capsys.readouterr().err


@pytest.mark.parametrize("platform", ["darwin", "win32"])
@pytest.mark.parametrize("command", ["admit", "explain", "preempt", "cgroups"])
def test_another_system_than_linux_needs_a_node(
    command: str,
    platform: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (web,) = write(tmp_path, "web")
    monkeypatch.setattr("sys.platform", platform)
    assert run([command, "-f", web]) == ERROR
    assert capsys.readouterr().err == "error: this machine is not Linux: name a node with --node\n"
    assert run([command, "-f", web, "--node", "vm-4"]) == YES


PATCH = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2}\n"
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: small}\nstatus: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}\n"
USAGE_OF_NODE = ["--node", "vm-4", "--available", "memory.available=10Gi"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["requests"], YES),
        (["admit", "--node", "vm-4"], YES),
        (["explain", "--node", "vm-4"], YES),
        (["quota"], YES),
        (["lint"], YES),
        (["evict", *USAGE_OF_NODE], YES),
        (["fleet"], YES),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_patches_of_a_kustomization_are_counted_instead_of_judged(
    command: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "overlay").mkdir()
    write(tmp_path, "web")
    (tmp_path / "node.yaml").write_text(NODE)
    (tmp_path / "replicas.yaml").write_text(PATCH)
    (tmp_path / "overlay" / "cpu.yaml").write_text(PATCH)
    (tmp_path / "kustomization.yaml").write_text(
        "patches: [{path: overlay/cpu.yaml}, {patch: '- op: remove'}]\npatchesStrategicMerge: [replicas.yaml]\n"
    )
    assert run([*command, "-R", "-f", str(tmp_path)]) == code
    assert "2 kustomize patches" in capsys.readouterr().err


def test_a_broken_kustomization_names_no_patches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "patch.yaml").write_text(PATCH)
    (tmp_path / "kustomization.yml").write_text("patches: [{path: patch.yaml}\n")
    assert run(["requests", "-f", str(tmp_path)]) == ERROR
    assert "kustomization.yml" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["evict", *USAGE_OF_NODE], ["fleet"]], ids=lambda value: value[0])
def test_every_command_descends_and_builds_kustomizations(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    below = tmp_path / "all" / "below"
    below.mkdir(parents=True)
    write(below, "web")
    (tmp_path / "all" / "node.yaml").write_text(NODE)
    tool(tmp_path, "kubectl", f"echo '{POD % ('web', 'web')}---\n{NODE}'", monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert run([*command, "-R", "-f", "all"]) == YES
    assert run([*command, "-k", "overlay"]) == YES


@pytest.mark.parametrize("version", ["kubecontrolplane.config.openshift.io/v1", "release-notes/v2"])
def test_configuration_of_a_program_is_no_object(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"apiVersion: {version}\nkind: KubeAPIServerConfig\n---\n" + POD % ("a", "a"))
    for command in ("lint", "quota", "requests"):
        assert run([command, "-f", str(path)]) == YES
        assert "1 KubeAPIServerConfig" in capsys.readouterr().err


def test_a_limit_range_that_no_pod_is_under_is_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    limits = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: small, namespace: %s}\nspec: {limits: [{type: Pod}]}\n---\n"
    path.write_text(limits % "other" + limits % "default" + POD % ("a", "a"))
    assert run(["requests", "-f", str(path)]) == YES
    assert capsys.readouterr().err == "skipped: 1 LimitRange of a namespace without pods\n"


def test_one_object_that_a_selector_leaves_out_is_counted_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["requests", "-f", ",".join(write(tmp_path, "web", "db")), "-l", "app=web"]) == YES
    assert capsys.readouterr().err == "skipped: 1 object that -l does not select\n"


def test_a_namespace_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["requests", "--node", "vm-4", "-f", "examples/agent/web.yaml", "-n", "a\udcff"]) == USAGE
    assert "cannot be a namespace" in capsys.readouterr().err
