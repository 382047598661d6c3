"""Directories of nodewright with its locked dependencies, for artefacts that bring them along: the single file, .deb, the image."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.source import ROOT

COMMAND_LOCK = ROOT / "packaging" / "github-action" / "requirements.lock"
"""What the command needs."""
SERVER_LOCK = ROOT / "packaging" / "kubernetes" / "requirements.lock"
"""What agent, exporter and extender need."""
PLATFORMS = {
    "x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
}
"""The machines of Linux for which packages are fetched, with pip's names for them."""
WHEELS = ROOT / "build" / "wheels"
"""The packages that were fetched: the second build of a release is of the same ones and needs no network; locks have their digests."""


def install_locked(lock: Path, folder: Path, *, python: str = "3.11", machine: str = "x86_64") -> None:
    """Installs the packages of a lock for a release of Python and a machine, by their digests.

    Errors: SystemExit with pip's message where they cannot be downloaded.
    """
    words = [
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--python-version",
        python,
        "--implementation",
        "cp",
    ]
    for platform in PLATFORMS[machine]:
        words += ["--platform", platform]
    words += ["-r", str(lock)]
    kept = ["--no-index", "--find-links", str(WHEELS), *words]
    try:
        _install(folder, kept)
    except SystemExit:
        _pip("download", "-d", str(WHEELS), *words)
        _install(folder, kept)


def version_of(wheel: Path) -> str:
    """The version that the wheel names: while a release is made, it is newer than the running code.

    >>> version_of(Path("dist/nodewright-1.2.3-py3-none-any.whl"))
    '1.2.3'
    """
    return wheel.name.split("-")[1]


def install_wheel(wheel: Path, folder: Path) -> None:
    """Installs a wheel of ours, without what it depends on."""
    _install(folder, [str(wheel)])


def _install(folder: Path, words: Sequence[str]) -> None:
    _pip("install", "--no-compile", "--upgrade", "--target", str(folder), *words)
    # Scripts name this machine's interpreter, and two files name directories of this machine.
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for name in ("direct_url.json", "REQUESTED", "INSTALLER"):
        for path in folder.glob(f"*.dist-info/{name}"):
            path.unlink()
    for record in folder.glob("*.dist-info/RECORD"):
        record.unlink()


def _pip(command: str, *words: str) -> None:
    line = [sys.executable, "-m", "pip", command, "-q", "--disable-pip-version-check", "--no-deps", *words]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"the packages cannot be installed: {ran.stderr.strip()}")


def files_below(folder: Path) -> list[Path]:
    """All files and links, in an order that is always the same."""
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
