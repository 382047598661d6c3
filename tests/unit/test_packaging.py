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
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.json_schema import violations
from tests.support.sarif_schema import SARIF_SCHEMA

from nodewright.agent.rules.container_security import CAPABILITIES
from nodewright.cli.app import COMMANDS, app, run
from nodewright.documents.output.terminal import ERROR, NO, YES
from nodewright.version import __version__
from tools.published import read_published
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
    for name in ("bash", "sh", "git", "mkdir", "rm"):
        programs.joinpath(name).symlink_to(str(shutil.which(name)))
    script = f'#!/bin/sh\nexec "{sys.executable}" -m nodewright "$@"\n'
    programs.joinpath("nodewright").write_text(script)
    programs.joinpath("nodewright").chmod(0o755)
    # Isolated it would not find the modules of this test.
    isolated = tmp_path / "nodewright" / "bin" / "python"
    isolated.parent.mkdir(parents=True)
    isolated.write_text(f'#!/bin/sh\n[ "$1" = -I ] || exit 99\nshift\nexec "{sys.executable}" "$@"\n')
    isolated.chmod(0o755)
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path))
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
    variables = {
        name: value for step in action["runs"]["steps"] for name, value in step.get("env", {}).items()
    }
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


TRAP = "import os\nos.close(os.open(os.environ['TRAPPED'], os.O_CREAT))\n"
TRAPS = (
    "venv",
    "logging",
    "pip",
    "sitecustomize",
    "usercustomize",
    "nodewright",
    "json",
    "os",
    "runpy",
    "click",
)
BACKEND = """import shutil
def build_wheel(folder, *_):
    name = "nodewright-1.0-py3-none-any.whl"
    shutil.copy(name, folder)
    return name
"""
ECHO = "import json, sys\nprint(json.dumps(sys.argv[1:]))\n"


def wheel(folder: Path, name: str, version: str) -> str:
    """Writes a package whose module prints its arguments; the SHA-256 of its wheel."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    information = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as files:
        files.writestr(f"{name}/__init__.py", "")
        files.writestr(f"{name}/__main__.py", ECHO)
        files.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        files.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        files.writestr(f"{information}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_action_runs_nothing_of_the_workspace(tmp_path: Path) -> None:
    """Both steps as the runner runs them, in a directory of files that are modules, options, patterns and links."""
    workspace, temporary, index = tmp_path / "workspace", tmp_path / "temporary", tmp_path / "index"
    for folder in (workspace, temporary, index):
        folder.mkdir()
    for name in TRAPS:
        workspace.joinpath(f"{name}.py").write_text(TRAP)
    for name in ("-c", "--fail-on=never.yaml", "lint", "quota", "*", "$(touch trapped).yaml", "a b.yaml"):
        workspace.joinpath(name).write_text("{}\n")
    source = tmp_path / "source"
    action = shutil.copytree(ACTION, source / "packaging" / "github-action")
    steps = {step["name"]: step for step in document(ACTION / "action.yml")["runs"]["steps"]}
    locked = f"other==1.0 --hash=sha256:{wheel(index, 'other', '1.0')}\n"
    (action / "requirements.lock").write_text(locked)
    action.parent.joinpath("kubernetes").mkdir()
    action.parent.joinpath("kubernetes", "build.lock").write_text(locked)
    wheel(source, "nodewright", "1.0")
    source.joinpath("backend.py").write_text(BACKEND)
    source.joinpath("pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    environment = {
        "PATH": os.environ["PATH"],
        "RUNNER_TEMP": str(temporary),
        "GITHUB_ACTION_PATH": str(action),
        "TRAPPED": str(tmp_path / "trapped"),
        "PYTHONPATH": str(workspace),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
    }

    def step(name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[name]["run"]]
        return subprocess.run(
            command, cwd=workspace, env={**environment, **inputs}, capture_output=True, text=True, check=False
        )

    installed = step("install")
    assert installed.returncode == 0, installed.stderr
    inputs = {"PATHS": "*", "NODE": "-c", "FAIL_ON": "$(touch trapped)", "ONLY_CHANGED": "true", "SARIF": ""}
    checked = step("check", COMMANDS="lint quota admit", BASE="--output=trapped", **inputs)
    assert [json.loads(line) for line in checked.stdout.splitlines()] == [
        ["lint", "-R", "--filename=*", "--node=-c", "--fail-on=$(touch trapped)", "-o", "github"],
        ["quota", "-R", "--filename=*", "-o", "github"],
        ["admit", "-R", "--filename=*", "--node=-c", "-o", "github"],
    ]
    # A pattern that a file of the workspace matches.
    assert step("check", COMMANDS="l*t", BASE="", **inputs).returncode == 2
    assert not (tmp_path / "trapped").exists()
    assert not (workspace / "trapped").exists()


@pytest.mark.slow
def test_the_action_writes_through_no_link(tmp_path: Path, commands: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (workspace, outside):
        folder.mkdir()
    victim = outside / "lint.sarif"
    victim.write_text("PATH=kept\n")
    workspace.joinpath("pod.yaml").write_text(POD)
    workspace.joinpath("link").symlink_to(outside)
    for place in ("link", "link/below", "../workspace/link"):
        refused = check(workspace, COMMANDS="lint", SARIF=place)
        assert (refused.returncode, "is a link" in refused.stdout) == (2, True), refused.stdout
    workspace.joinpath("reports").mkdir()
    workspace.joinpath("reports", "lint.sarif").symlink_to(victim)
    assert check(workspace, COMMANDS="lint", SARIF="reports").returncode == YES
    assert json.loads(workspace.joinpath("reports", "lint.sarif").read_text())["runs"]
    assert list(outside.iterdir()) == [victim]
    assert victim.read_text() == "PATH=kept\n"


LOCKS = {
    "github-action/requirements.lock": (),
    "kubernetes/requirements.lock": ("agent", "cluster", "dashboard"),
    "kubernetes/build.lock": None,
}
"""The extras that each lock covers; None: what builds the package instead."""


@pytest.mark.parametrize("path", LOCKS)
def test_a_lock_has_every_package_with_version_and_digest(path: str) -> None:
    text = (ROOT / "packaging" / path).read_text("utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    locked = {re.split("==", line)[0].lower() for line in lines}
    assert [
        line for line in lines if not re.match(r"[\w.-]+==[\w.]+ .*--hash=sha256:[0-9a-f]{64}", line)
    ] == []
    described, extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8")), LOCKS[path]
    project = described["project"]
    wanted = described["build-system"]["requires"]
    if extras is not None:
        optional = project["optional-dependencies"]
        wanted = [*project["dependencies"], *(name for extra in extras for name in optional[extra])]
    names = {re.split(r"[>=\[]", name)[0].lower() for name in wanted} - {"nodewright"}
    assert names - locked == set()


def test_python_imports_nothing_of_the_directory_where_it_starts() -> None:
    texts = {path: path.read_text("utf-8") for path in (ROOT / "packaging").rglob("*") if path.is_file()}
    texts |= {path: path.read_text("utf-8") for path in (ROOT / "docs/guide/ci.md", HOOKS)}
    bad = [(path.name, line) for path, text in texts.items() for line in text.splitlines()
           if re.search(r"python3?\"? (?!-I)", line) and re.search(r" -[A-Za-z]*[mc] ", line)]  # fmt: skip
    assert bad == []
    assert any("python3 -I -m venv" in text for text in texts.values())


def test_the_image_is_built_from_digests() -> None:
    text = (ROOT / "packaging/kubernetes/Dockerfile").read_text("utf-8")
    assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    installs = re.findall(r"pip install (.*)", text)
    assert installs
    assert [line for line in installs if "--require-hashes" not in line and "--no-deps" not in line] == []
    assert "--no-build-isolation" in text


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
    assert ran.stderr.endswith(": install nodewright from its source with pipx, uv or pip\n")


def test_the_chart_names_no_image() -> None:
    chart = ROOT / "packaging/helm/nodewright"
    assert document(chart / "values.yaml")["image"]["repository"] == read_published().image
    images = [
        text
        for path in (chart / "templates").glob("*.yaml")
        if "image: {{" in (text := path.read_text("utf-8"))
    ]
    assert len(images) == 2
    assert all('required "image.repository ' in text for text in images)


def test_the_action_knows_only_commands_that_exist() -> None:
    names = re.findall(r"^    (\w+)\) run (\w+)", (ACTION / "check.sh").read_text(), re.MULTILINE)
    assert [name for name, command in names if name != command or name not in app.list_commands(None)] == []  # type: ignore[arg-type] # a group without context
    assert len(names) == 3


UNIT = ROOT / "packaging/nodewright-agent.service"
MOUNT_NAMESPACE = re.compile(
    r"(Private(Tmp|Devices|Mounts|Users)|Protect\w+|(ReadOnly|ReadWrite|Inaccessible|Exec|NoExec)Paths"
    r"|Root(Directory|Image)|DynamicUser|TemporaryFileSystem|Bind\w*Paths|MountFlags)="
)
NEEDED = [
    "SYS_ADMIN",
    "SYS_RESOURCE",
    "SYS_NICE",
    "SYS_CHROOT",
    "KILL",
    "CHOWN",
    "FOWNER",
    "DAC_OVERRIDE",
    "SETUID",
    "SETGID",
    "SETPCAP",
    "NET_ADMIN",
]


def test_the_unit_of_the_agent_lets_no_user_list_its_directories() -> None:
    unit = UNIT.read_text("utf-8").splitlines()
    for kind in ("State", "Runtime"):
        assert f"{kind}DirectoryMode=0711" in unit
        assert any(line.startswith(f"{kind}Directory=") for line in unit)


def test_the_unit_of_the_agent_takes_away_what_the_agent_does_not_use() -> None:
    lines = UNIT.read_text("utf-8").splitlines()
    settings = [line for line in lines if not line.startswith("#")]
    for name in ("UMask", "LockPersonality", "RestrictAddressFamilies", "SystemCallFilter", "LimitCORE"):
        assert any(line.startswith(f"{name}=") for line in settings), name
    removed = {
        word.removeprefix("CAP_")
        for line in settings
        if line.startswith("CapabilityBoundingSet=~")
        for word in line.partition("~")[2].split()
    }
    assert {"SYS_MODULE", "SYS_BOOT", "SYS_RAWIO", "SYS_TIME"} <= removed <= set(CAPABILITIES)
    assert not removed & set(NEEDED)
    assert [line for line in settings if MOUNT_NAMESPACE.match(line)] == []


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name
    # The program is not installed here.
    unit.write_text(UNIT.read_text("utf-8").replace("/usr/local/bin/nodewright", "/bin/true"))
    verified = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert [line for line in verified.stderr.splitlines() if UNIT.name in line] == []
