"""What users install: without extras every command works, or names in one line the extra that it needs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import COMMANDS, missing_extra_text, run
from nodewright.documents.output.terminal import ERROR, NO, YES
from nodewright.version import install_command, recordings_command
from tools.package_readme import package_readme
from tools.source import ROOT

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RELEASES = ("3.11", "3.12", "3.13", "3.14")
SEED = int(os.environ.get("FAULT_SEED") or 0)
TRIED = RELEASES if os.environ.get("RECORDED_SHARE") == "1" else (RELEASES[SEED % len(RELEASES)],)
"""Of the releases of Python one is tried, another with each seed; in `make soak` all."""
WORKER = "examples/nodes/worker.yaml"
UV = shutil.which("uv")
QUIET = ("--disable-pip-version-check",)

WITHOUT_EXTRAS = {
    "requests -f examples/admission/pods.yaml": 0,
    f"admit -f examples/admission/pods.yaml --node {WORKER}": 3,
    f"admit -f examples/admission/pods.yaml --node {WORKER} --serve": 1,
    "explain -f examples/numa/split-pods.yaml --node examples/numa/split-node.yaml": 3,
    "preempt -f examples/preemption/critical.yaml --node examples/preemption/node.yaml": 0,
    "evict --node examples/eviction/node.yaml --usage examples/eviction/summary.json": 3,
    "replay examples/scenarios/fragmented.yaml": 3,
    f"rehearse --node {WORKER}": 0,
    "lint -f examples/lint/shop.yaml": 0,
    "fit -f examples/fit/four-gpus.yaml --node dgx-a100": 0,
    "drain node/worker-1 -f examples/drain/shop.yaml": 3,
    "lend --node examples/lend/node.yaml --usage examples/lend/usage.csv": 0,
    "hollow --nodes 2*vm-4 --kubeconfig /nowhere/config": 1,
    f"cgroups -f examples/admission/pods.yaml --node {WORKER}": 3,
    "audit --node examples/nodes/worker.yaml": 1,
    "quota -f examples/quota": 0,
    "fleet --nodes examples/fleet/nodes.yaml --pods examples/fleet/pods.yaml": 3,
    "node catalogue": 0,
    "agent --dry-run --node vm-4 --pod-manifest-path examples/agent": 3,
    "agent --dry-run=serve --node vm-4 --socket /tmp/nowhere/agent.sock": 1,
    "run -f examples/admission/pods.yaml --socket /nowhere/agent.sock": 1,
    "get pods --socket /nowhere/agent.sock": 1,
    "describe pod web --socket /nowhere/agent.sock": 1,
    "logs web --socket /nowhere/agent.sock": 1,
    "top pods --socket /nowhere/agent.sock": 1,
    "dashboard --socket /nowhere/agent.sock": 1,
    "delete pod web --socket /nowhere/agent.sock": 1,
    "verify": 1,
    "schema AdmissionReport": 0,
    "examples": 0,
    "completion bash": 0,
    "upgrade --node examples/upgrade/worker-7.yaml -f examples/upgrade/manifests.yaml": 3,
    "version": 0,
    "help admit": 0,
    "kubelet --list-flags": 0,
    "export --kubelet-root docs": 1,
    "extender": 1,
}
"""The exit code of each command on bundled examples."""


ELSEWHERE = {
    **{
        command: code
        for command, code in WITHOUT_EXTRAS.items()
        if "serve" not in command  # an event loop of Windows is missing, and none ends
    },
    "verify": 0,  # the recordings lie in this checkout
    "admit -f examples/admission/pods.yaml": 1,
    "node capture": 1,
    "node capture --lscpu examples/machines/lscpu.json": 0,
    "node capture --kubelet-root examples/worker-3/kubelet --catalogue 2s-2n-8c-smt2-adjacent": 0,
    "node capture --kubeconfig /nowhere/config node/worker-1": 1,
    f"node show --node {WORKER}": 0,
    "node export --nrt --node examples/worker-3/from-the-cluster.yaml": 0,
    "fleet run --nodes examples/fleet/nodes.yaml --pods examples/fleet/pods.yaml": 3,
    "fleet capacity -f examples/fleet/probe.yaml --nodes examples/fleet/nodes.yaml": 0,
    "fleet generate --nodes 3 --pods 5 --nodes-file /nowhere/n.csv --pods-file /nowhere/p.csv": 1,
    "fleet minimise --nodes examples/fleet/nodes.csv --pods examples/fleet/pods.csv": 0,
    "evict --live --node vm-4": 1,
    "lint -f examples/lint/shop.yaml --diff": 3,
    "requests -f examples/admission/pods.yaml --explain": 0,
    "cgroups -f examples/cgroups/running.yaml --node examples/cgroups/node.yaml --diff examples/cgroups/tree": 3,
    "explain -f examples/admission/pods.yaml --node node/worker-1 --kubeconfig /nowhere/config": 1,
    "agent": 1,
}
"""The same, subcommands included, on a system that is not Linux."""
ON_SYSTEMS = {
    "win32": {"agent --dry-run --node vm-4 --pod-manifest-path examples/agent": 1},
    "darwin": {},
}
"""Where a system differs from that."""


def interpreters() -> dict[str, str]:
    """The interpreters of this machine by release: on the PATH, or of pyenv or uv."""
    result = {}
    for release in RELEASES:
        candidates = [shutil.which(f"python{release}")]
        for folder in (Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python"):
            candidates += sorted(str(path) for path in folder.glob(f"*{release}*/bin/python{release}"))
        for candidate in filter(None, candidates):
            if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                result[release] = candidate
                break
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("installation")


def finish(command: list[str]) -> None:
    """Runs a command of an installer; skips the test where it has no network."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 and re.search(
        "Could not find a version|Temporary failure|ConnectionError|error sending request", done.stderr
    ):
        pytest.skip(f"the dependencies cannot be downloaded: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@cache
def wheel(folder: Path) -> Path:
    """The package as users get it, built once for all releases of Python."""
    if UV is not None:
        finish([UV, "build", "-q", "--wheel", "--out-dir", str(folder), str(ROOT)])
    else:
        finish(
            [sys.executable, "-m", "pip", "wheel", "-q", *QUIET, "--no-deps", "-w", str(folder), str(ROOT)]
        )
    (built,) = folder.glob("*.whl")
    return built


@cache
def installed(release: str, folder: Path) -> Path:
    """The command, installed without extras into a new virtual environment.

    The installer of this environment serves all of them: a pip in each takes longer than the package.
    """
    interpreter = interpreters().get(release)
    if interpreter is None:
        pytest.skip(f"no Python {release} on this machine")
    place = folder / release
    subprocess.run([interpreter, "-m", "venv", "--without-pip", place], check=True, capture_output=True)
    python, package = str(place / "bin/python"), str(wheel(folder))
    if UV is not None:
        finish([UV, "pip", "install", "-q", "--python", python, package])
    else:
        finish(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                python,
                "install",
                "-q",
                *QUIET,
                "--no-compile",
                package,
            ]
        )
    return place / "bin/nodewright"


_CODE = """
import contextlib, io, json, sys
from nodewright.cli.app import run
results = {}
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments.split())
    results[arguments] = [code, out.getvalue()[:200], err.getvalue()]
print(json.dumps(results))
"""


def results(command: Path, lines: Iterable[str]) -> dict[str, tuple[int, str, str]]:
    """The exit code, the beginning of the output and the messages of each command line, in one process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [command.parent / "python", "-c", _CODE, json.dumps(list(lines))],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return {line: tuple(result) for line, result in json.loads(done.stdout).items()}


@pytest.mark.slow
@pytest.mark.parametrize("release", TRIED)
def test_every_command_has_its_help_on_every_python(release: str, folder: Path) -> None:
    command = installed(release, folder)
    helps = results(command, [f"{name} --help" for name in ("", *COMMANDS)])
    assert [
        line for line, (code, out, _) in helps.items() if code != YES or not out.startswith("Usage: ")
    ] == []
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("nodewright ")


@pytest.mark.slow
@pytest.mark.parametrize("release", TRIED)
def test_without_extras_every_command_works_or_names_its_extra(release: str, folder: Path) -> None:
    assert {line.split()[0] for line in WITHOUT_EXTRAS} == set(COMMANDS)
    ran = results(installed(release, folder), WITHOUT_EXTRAS)
    assert {line: code for line, (code, _, _) in ran.items()} == WITHOUT_EXTRAS, ran
    extras = {line: err.strip() for line, (_, _, err) in ran.items() if "pip install" in err}
    assert extras.pop("verify").endswith(f": {recordings_command()}, or name a FILE")
    assert [(line.split()[0], text.rpartition("[")[2]) for line, text in extras.items()] == [
        ("admit", "dashboard]'"),
        ("hollow", "agent]'"),
        ("agent", "agent]'"),
        ("dashboard", "dashboard]'"),
        ("export", "agent]'"),
        ("extender", "agent]'"),
    ]
    assert all("\n" not in text for text in extras.values())


def test_a_missing_package_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "nodewright.cli.browser_pages", raising=False)
    arguments = ["admit", "-f", "examples/admission/pods.yaml", "--node", WORKER, "--serve"]
    assert run(arguments) == ERROR
    assert capsys.readouterr().err == (
        f"error: `nodewright admit` needs the package starlette: {install_command('dashboard')}\n"
    )


def test_a_dry_run_of_the_agent_needs_no_extra() -> None:
    packages = ("starlette", "uvicorn", "h11", "grpc", "google", "cryptography", "wsproto")
    code = f"import sys; sys.modules.update(dict.fromkeys({packages})); {_DRY_RUN}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (NO, "")
    assert "create a sandbox for pod default/web-vm-4" in ran.stdout


_DRY_RUN = """from nodewright.cli.app import run
sys.exit(run("agent --dry-run --node vm-4 --pod-manifest-path examples/agent".split()))"""


def test_the_agent_needs_its_own_extra() -> None:
    text = missing_extra_text(ModuleNotFoundError(name="starlette"), ["agent"])
    assert text == f"`nodewright agent` needs the package starlette: {install_command('agent')}"


def test_a_module_of_ours_that_is_missing_is_a_bug() -> None:
    assert missing_extra_text(ModuleNotFoundError(name="nodewright.cli.nothing"), ["agent"]) is None


def test_no_extra_contains_the_tools_of_developers() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"dashboard", "agent", "cluster", "exact", "ray", "dask", "parquet", "testing"}
    assert any(name.startswith("ruff") for name in PYPROJECT["dependency-groups"]["dev"])


def test_the_metadata_are_complete() -> None:
    project = PYPROJECT["project"]
    assert project["license"] == "Apache-2.0"
    assert project["authors"]
    assert project["keywords"]
    assert all(url.startswith("https://") for url in project.get("urls", {}).values())
    assert {f"Programming Language :: Python :: {release}" for release in RELEASES} <= set(
        project["classifiers"]
    )


def test_the_readme_of_the_package_has_no_relative_link() -> None:
    text = package_readme((ROOT / "README.md").read_text("utf-8"))
    assert re.findall(r"\]\((?!https?:)", text) == []
    assert "Ask your node before the scheduler does" in text


def test_other_systems_run_every_subcommand() -> None:
    pages = {
        path.stem.removeprefix("nodewright-") for path in (ROOT / "packaging/man").glob("nodewright-*.1")
    }
    started = {"-".join(line.split()[:count]) for line in ELSEWHERE for count in (1, 2)}
    assert pages - started == set()


@pytest.mark.slow
@pytest.mark.parametrize("system", ON_SYSTEMS)
def test_on_other_systems_every_command_works_or_names_linux_in_one_line(system: str) -> None:
    """In one process for all commands: to start Python takes longer than most of them."""
    script = ROOT / "tests" / "support" / "other_system.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, str(script), system, *ELSEWHERE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == YES, ran.stderr
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {result["command"]: result["code"] for result in results} == ELSEWHERE | ON_SYSTEMS[system]
    for result in results:
        assert "Traceback" not in result["err"]
        if result["code"] == ERROR:
            errors = [line for line in result["err"].splitlines() if line.startswith("error:")]
            assert len(errors) == 1, result


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "node capture",
            "not Linux: describe a machine with --sysfs, --lscpu, --machine-info or --catalogue",
        ),
        ("agent", "not Linux: the agent runs pods on Linux only"),
        ("evict --live --node vm-4", "this machine is not Linux: specify --usage or --available"),
    ],
)
def test_what_needs_linux_says_so(
    command: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert run(command.split()) == ERROR
    assert capsys.readouterr().err == f"error: {message}\n"


def test_without_linux_an_assumed_memory_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    command = ["requests", "-f", "examples/admission/pods.yaml"]
    assert run(command) == YES
    assert "warning" not in capsys.readouterr().err
    assert run([*command, "--explain"]) == YES
    assert "warning: an assumed memory of 16Gi: this machine is not Linux" in capsys.readouterr().err
    assert run([*command, "--explain", "--memory-capacity", "64Gi"]) == YES
    assert "warning" not in capsys.readouterr().err
