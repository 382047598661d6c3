"""What is packaged around the command: the GitHub Action, the pre-commit hooks, the krew plugin, SARIF for code hosts."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.json_schema import violations
from tests.support.sarif_schema import SARIF_SCHEMA

from nodewright.cli.app import COMMANDS, app, run
from nodewright.documents.output.terminal import ERROR, NO, YES
from nodewright.version import __version__
from tools.release import LAUNCHER, archive, manifest
from tools.source import ROOT

ACTION = ROOT / "packaging" / "github-action"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small}\nspec: {hard: {pods: 0}}\n---\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: x, resources: {limits: {cpu: 1, memory: 400m}}}]}\n"


def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of programs with `nodewright`, bash and git, and no others."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "git", "mkdir"):
        programs.joinpath(name).symlink_to(str(shutil.which(name)))
    script = f'#!/bin/sh\nexec "{sys.executable}" -m nodewright "$@"\n'
    programs.joinpath("nodewright").write_text(script)
    programs.joinpath("nodewright").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return programs


# ---------------------------------------------------------------- SARIF


@pytest.mark.parametrize(
    "command",
    [
        "lint -f examples/lint/shop.yaml",
        "lint -f examples/lint/shop.yaml --node epyc-7742-2s-nps1 --kubelet-config examples/lint/kubelet.yaml",
        "lint -f examples/eviction/node.yaml",
        "quota -f examples/quota",
    ],
)
def test_sarif_follows_its_schema(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "-o", "sarif"]) in (YES, NO)
    assert violations(SARIF_SCHEMA, json.loads(capsys.readouterr().out)) == []


def test_sarif_and_annotations_of_quota_are_about_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(QUOTA + POD)
    assert run(["quota", "-f", str(path), "-o", "sarif"]) == NO
    log = json.loads(capsys.readouterr().out)
    assert violations(SARIF_SCHEMA, log) == []
    (result,) = log["runs"][0]["results"]
    assert run(["quota", "-f", str(path), "-o", "github"]) == NO
    line = capsys.readouterr().out.strip()
    assert line.startswith(f"::error title=quota-exceeded,file={path},line=6,col=1::Pod default/web: ")
    assert line.endswith(result["message"]["text"])


# ---------------------------------------------------------------- the action


def check(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Runs the action's commands with its defaults and these inputs, named as its variables."""
    defaults = {
        name.upper().replace("-", "_"): str(described["default"])
        for name, described in document(ACTION / "action.yml")["inputs"].items()
    }
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **defaults, **inputs}
    return subprocess.run(
        ["bash", str(ACTION / "check.sh")], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip


def test_every_input_of_the_action_reaches_its_commands() -> None:
    action = document(ACTION / "action.yml")
    variables = {name: value for step in action["runs"]["steps"] for name, value in step["env"].items()}
    for name in action["inputs"]:
        assert variables[name.upper().replace("-", "_")] == f"${{{{ inputs.{name} }}}}"
    text = (ACTION / "check.sh").read_text() + json.dumps(action)
    assert [name for name in variables if f"${name}" not in text and f"${{{name}" not in text] == []


@pytest.mark.slow
def test_the_action_annotates_lines_and_fails_with_the_worst_code(tmp_path: Path, commands: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    folder.joinpath("pods.yaml").write_text(QUOTA + POD)
    checked = check(folder, FAIL_ON="warning", SARIF="sarif")
    assert checked.returncode == NO, checked.stderr
    assert "::warning title=NW110,file=./pods.yaml".replace("./", "") in checked.stdout
    assert "::error title=quota-exceeded,file=pods.yaml,line=6" in checked.stdout
    for name in ("lint", "quota"):
        assert violations(SARIF_SCHEMA, json.loads((folder / "sarif" / f"{name}.sarif").read_text())) == []


@pytest.mark.slow
def test_the_action_admits_with_a_node(tmp_path: Path, commands: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    folder.joinpath("pod.yaml").write_text(POD)
    checked = check(folder, COMMANDS="admit", NODE="vm-4")
    assert (checked.returncode, checked.stdout) == (YES, ""), checked.stderr
    folder.joinpath("pod.yaml").write_text(POD.replace("400m", "900Gi"))
    refused = check(folder, COMMANDS="admit", NODE="vm-4")
    assert refused.returncode == NO, refused.stderr
    assert (
        "::error title=OutOfmemory,file=pod.yaml::default/web: refused: memory: 900Gi requested"
        in refused.stdout
    )
    assert check(folder, COMMANDS="admitt").returncode == 2


@pytest.mark.slow
def test_the_action_skips_changes_without_manifests(tmp_path: Path, commands: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    folder.joinpath("pod.yaml").write_text(POD)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    assert check(folder, BASE="HEAD").stdout == "no YAML or JSON file is changed\n"
    folder.joinpath("pod.yaml").write_text(POD.replace("400m", "oops"))
    assert check(folder, BASE="HEAD").returncode == ERROR


# ---------------------------------------------------------------- the hooks


def test_every_hook_runs_a_command_that_exists() -> None:
    hooks = document(HOOKS)
    assert [hook["id"] for hook in hooks] == ["nodewright-lint", "nodewright-quota", "nodewright-admit"]
    for hook in hooks:
        program, command = hook["entry"].split()
        assert program == "nodewright"
        assert command in COMMANDS
        assert hook["language"] == "python"
        assert hook["pass_filenames"] is False


@pytest.mark.parametrize("number", [0, 1])
def test_the_arguments_of_a_hook_are_those_of_its_command(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = document(HOOKS)[number]
    tmp_path.joinpath("pod.yaml").write_text(POD)
    monkeypatch.chdir(tmp_path)
    assert run([*hook["entry"].split()[1:], *hook["args"]]) == YES


# ---------------------------------------------------------------- krew


def test_the_manifest_is_what_krew_accepts() -> None:
    content = archive("1.2.3")
    described = manifest("1.2.3", "https://example.com/kubectl-nodewright-1.2.3.tar.gz", content)
    assert described["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert re.fullmatch(r"[\w-]+", described["metadata"]["name"])
    spec = described["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    (platform,) = spec["platforms"]
    assert platform["uri"].startswith("https://")
    assert platform["sha256"] == hashlib.sha256(content).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as files:
        assert sorted(files.getnames()) == sorted(file["from"] for file in platform["files"])
        assert files.getmember(platform["bin"]).mode == 0o755
        launcher = files.extractfile(platform["bin"])
        assert launcher is not None
        assert b"\nversion=1.2.3\n" in launcher.read()


def test_the_archive_of_a_version_is_always_the_same() -> None:
    assert archive(__version__) == archive(__version__)


@pytest.mark.slow
def test_the_launcher_runs_the_installed_command(commands: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [str(LAUNCHER), "version"], env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.startswith("nodewright ")) == (YES, True), ran.stderr


def test_the_launcher_without_nodewright_names_the_remedy(commands: Path) -> None:
    commands.joinpath("nodewright").unlink()
    ran = subprocess.run([str(LAUNCHER)], capture_output=True, text=True, check=False)
    assert ran.returncode == ERROR
    assert ran.stderr == (
        "kubectl nodewright: install it with `pip install nodewright`, or install uv or pipx\n"
    )


def test_the_action_knows_only_commands_that_exist() -> None:
    names = re.findall(r"^    (\w+)\) run nodewright (\w+)", (ACTION / "check.sh").read_text(), re.MULTILINE)
    assert [name for name, command in names if name != command or name not in app.list_commands(None)] == []  # type: ignore[arg-type] # a group without context
    assert len(names) == 3


def test_the_unit_of_the_agent_lets_no_user_list_its_directory() -> None:
    unit = (ROOT / "packaging/nodewright-agent.service").read_text("utf-8").splitlines()
    assert "StateDirectoryMode=0711" in unit
    assert any(line.startswith("StateDirectory=") for line in unit)
