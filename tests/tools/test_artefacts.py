"""Each artefact of a release is installed on a clean root, and does the README's first example there: part of `make soak`.

They need a network for their packages, and minutes.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.unit.test_installation import interpreters

from nodewright.version import __version__
from tools.deb import build_packages
from tools.pyz import pyz
from tools.release import hatch
from tools.source import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("RECORDED_SHARE") != "1", reason="minutes: make soak"),
    pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed: make setup"),
]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
"""The command finds nothing of this checkout."""
TIME_S = 1_700_000_000
README = (ROOT / "README.md").read_text("utf-8")
FIRST_EXAMPLE = re.search(r"```console\n\$ (nodewright .*)\n((?:.+\n)*?)\.\.\.\n```", README)
OF_SHELLS = {
    "usr/share/bash-completion/completions/nodewright",
    "usr/share/fish/vendor_completions.d/nodewright.fish",
    "usr/share/zsh/vendor-completions/_nodewright",
}
VERIFIED = re.compile(r"^\d+ passed, 0 failed$", re.MULTILINE)


def check_first_example(run_command: list[str], folder: Path, *, inside: str | None = None) -> None:
    """Copies the examples with the command, and runs the README's first example on them."""
    assert FIRST_EXAMPLE is not None
    place = inside or str(folder)

    def run(line: str) -> subprocess.CompletedProcess[str]:
        command = [*run_command, "sh", "-c", f'cd "{place}" && {line}']
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)

    copied = run("nodewright examples examples")
    assert copied.returncode == 0, copied.stderr
    answered = run(FIRST_EXAMPLE[1])
    assert (answered.returncode, answered.stdout.startswith(FIRST_EXAMPLE[2])) == (3, True), answered


def program(folder: Path, text: str) -> list[str]:
    """The start of a command line that finds a program `nodewright` with this text first."""
    path = folder / "bin" / "nodewright"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return ["env", f"PATH={path.parent}:/usr/bin:/bin"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with wheel and sdist."""
    out = tmp_path_factory.mktemp("dist")
    hatch(ROOT, out, TIME_S)
    return out


def wheel_of(files: Path) -> Path:
    return files / f"nodewright-{__version__}-py3-none-any.whl"


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def verify(place: Path) -> subprocess.CompletedProcess[str]:
    command = [str(place / "bin/nodewright"), "verify"]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["wheel", "sdist"])
def test_wheel_and_sdist_in_a_new_environment(name: str, files: Path, tmp_path: Path) -> None:
    package = wheel_of(files) if name == "wheel" else files / f"nodewright-{__version__}.tar.gz"
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip("--python", str(place / "bin/python"), "install", str(package))
    check_first_example(["env", f"PATH={place / 'bin'}:/usr/bin:/bin"], tmp_path)
    pages = {path.name for path in (place / "share/man/man1").iterdir()}
    assert pages == {path.name for path in (ROOT / "packaging/man").iterdir()}
    shells = (
        "bash-completion/completions/nodewright",
        "fish/vendor_completions.d/nodewright.fish",
        "zsh/site-functions/_nodewright",
    )
    assert [name for name in shells if not (place / "share" / name).is_file()] == []
    lacking = verify(place)
    assert "packaging/recordings" in lacking.stderr
    pip("--python", str(place / "bin/python"), "install", str(ROOT / "packaging" / "recordings"))
    verified = verify(place)
    assert VERIFIED.search(verified.stdout), verified


@pytest.mark.parametrize("tool", ["pipx run", "uvx"])
def test_runners_of_packages_take_it_from_a_local_index(tool: str, files: Path, tmp_path: Path) -> None:
    runner = shutil.which(tool.split(maxsplit=1)[0])
    if runner is None:
        pytest.skip(f"{tool.split(maxsplit=1)[0]} is not installed")
    index = tmp_path / "index" / "nodewright"
    index.mkdir(parents=True)
    shutil.copy(wheel_of(files), index)
    link = f'<a href="{wheel_of(files).name}">{wheel_of(files).name}</a>'
    (index / "index.html").write_text(link)
    url = f"file://{index.parent}"
    words = {
        "pipx run": f'run --no-cache --pip-args="--extra-index-url {url}" nodewright=={__version__}',
        "uvx": f"--no-cache --index {url} nodewright@{__version__}",
    }[tool]
    homes = f'export HOME="{tmp_path}" PIPX_HOME="{tmp_path}/pipx"'
    check_first_example(program(tmp_path, f'{homes}\nexec "{runner}" {words} "$@"'), tmp_path)


def test_the_single_file_on_every_python(files: Path, tmp_path: Path) -> None:
    content = pyz(wheel_of(files), TIME_S)
    assert pyz(wheel_of(files), TIME_S) == content
    assert len(content) < 12_000_000
    single = tmp_path / "nodewright.pyz"
    single.write_bytes(content)
    pythons = interpreters()
    assert pythons
    for release, python in pythons.items():
        folder = tmp_path / release
        folder.mkdir()
        line = f'export XDG_CACHE_HOME="{folder}/cache"\nexec {python} -S "{single}" "$@"'
        check_first_example(program(folder, line), folder)


def test_debian_packages_are_clean_and_purge_leaves_nothing(files: Path, tmp_path: Path) -> None:
    missing = [name for name in ("dpkg-deb", "mmdebstrap", "strip") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing)} (apt-get install mmdebstrap binutils)")
    packages = build_packages(wheel_of(files), tmp_path, TIME_S)
    again = tmp_path / "again"
    again.mkdir()
    assert [path.read_bytes() for path in build_packages(wheel_of(files), again, TIME_S)] == [
        path.read_bytes() for path in packages
    ]
    if shutil.which("lintian"):
        checked = subprocess.run(
            ["lintian", "--allow-root", *packages], capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stdout) == (0, "")
    root = tmp_path / "root"
    needed = "python3,python3-yaml,python3-click,init-system-helpers"
    bootstrap = ["mmdebstrap", "-q", "--variant=minbase", f"--include={needed}", "bookworm", str(root)]
    # The tests keep compiled modules in a place of their own, which is not to be in the root.
    made = subprocess.run(
        ["env", "-u", "PYTHONPYCACHEPREFIX", *bootstrap], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"mmdebstrap: {made.stderr.strip().splitlines()[-1]}")
    before = names_below(root)
    for package in packages:
        shutil.copy(package, root / "tmp")
    within = ["env", "-u", "PYTHONPYCACHEPREFIX", "chroot", str(root)]
    subprocess.run([*within, "sh", "-c", "dpkg -i /tmp/*.deb"], check=True, capture_output=True)
    installed = {path.relative_to(root).as_posix() for path in (root / "usr/share").rglob("*nodewright*")}
    assert installed >= OF_SHELLS
    pages = {f"share/man/man1/{path.name}.gz" for path in (ROOT / "packaging/man").iterdir()}
    assert {name.removeprefix("usr/") for name in installed if "/man1/" in name} >= pages
    check_first_example(within, root / "root", inside="/root")
    agent = "nodewright agent --dry-run --node vm-4 --pod-manifest-path /root/examples/agent"
    ran = subprocess.run([*within, "sh", "-c", agent], capture_output=True, text=True, check=False)
    assert "create a sandbox for pod" in ran.stdout, ran.stderr
    grpc = "import sys; sys.path[1:1] = ['/usr/lib/nodewright-agent']; import grpc, cryptography, google.protobuf"
    subprocess.run([*within, "python3", "-I", "-c", grpc], check=True)
    (root / "etc/nodewright/kubelet.yaml").write_text("changed: by hand\n")
    subprocess.run(
        [*within, "sh", "-c", "dpkg -i /tmp/nodewright-agent*.deb"], check=True, capture_output=True
    )
    assert (root / "etc/nodewright/kubelet.yaml").read_text() == "changed: by hand\n"
    shutil.rmtree(root / "root/examples")
    subprocess.run(
        [*within, "dpkg", "--purge", "nodewright-agent", "nodewright"], check=True, capture_output=True
    )
    for path in (root / "tmp").glob("*.deb"):
        path.unlink()
    assert names_below(root) - before == set()


def names_below(root: Path) -> set[str]:
    """All files but those in which dpkg keeps its own records."""
    places = (
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if not path.is_dir() or path.is_symlink()
    )
    return {
        place
        for place in places
        if not place.startswith(("var/lib/dpkg/", "var/log/", "proc/", "sys/", "dev/"))
    }
