"""Packages for Debian 12 with Debian's own tools: `nodewright` (the command) and `nodewright-agent` (its packages and the unit).

Both bring the Python packages of the locks that Debian does not have, or older ones; so they are for one release of Python and one
machine. The same inputs give the same bytes: dpkg-deb takes the time from SOURCE_DATE_EPOCH.
"""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from tools.bundle import COMMAND_LOCK, SERVER_LOCK, files_below, install_locked, install_wheel, version_of
from tools.source import ROOT

PACKAGES = ("nodewright", "nodewright-agent")
SOURCES = ROOT / "packaging" / "debian"
UNIT = ROOT / "packaging" / "nodewright-agent.service"
MAINTAINER = "The nodewright authors <nodewright@packages.invalid>"
"""No address exists: .invalid is reserved for that."""
_ABOUT = {
    "nodewright": (
        "predict and explain the kubelet's resource decisions",
        (
            "Gives the kubelet's own answer about the resources of pods: verdict, CPUs, NUMA nodes, devices, cgroup values, eviction victims "
            "and quota, with the reason and the smallest change that would get a pod admitted."
        ),
    ),
    "nodewright-agent": (
        "run pods on this machine by the kubelet's rules",
        (
            "Runs pods as plain processes or through a container runtime, alone or as a node of a cluster. The service is not started by the "
            "installation: it manages cgroups of the whole machine."
        ),
    ),
}
_OF_DEBIAN = ("click", "yaml", "_yaml", "pyyaml")
_DEPENDS = (
    "python3 (>= 3.11), python3 (<< 3.12), libc6 (>= 2.28), python3-click (>= 8.1), python3-yaml (>= 6.0)"
)
_OVERRIDES = {
    "nodewright-agent": "# The wheel of grpcio contains zlib; Debian's grpcio is older than the agent needs.\n"
    "nodewright-agent: embedded-library zlib [*cygrpc*]\n"
}
_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    py3compile -p {name} /usr/lib/{name}
{more}fi
"""
_PRERM = """#!/bin/sh
set -e
{more}py3clean -p {name}
find /usr/lib/{name} -name __pycache__ -type d -prune -exec rm -r {{}} + 2> /dev/null || true
"""
_POSTRM = """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || true
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/nodewright /run/nodewright /etc/nodewright
fi
"""
_RELOAD = (
    "    if [ -d /run/systemd/system ]; then\n        systemctl --system daemon-reload || true\n    fi\n"
)
_STOP = """if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop nodewright-agent.service || true
fi
"""


def build_packages(wheel: Path, out: Path, time_s: int) -> list[Path]:
    """Both packages, written into a directory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install_wheel(wheel, folder / "ours")
        install_locked(COMMAND_LOCK, folder / "command")
        install_locked(SERVER_LOCK, folder / "server")
        for path in [*(folder / "command").iterdir()]:
            other = folder / "server" / path.name
            shutil.rmtree(other) if other.is_dir() else other.unlink(missing_ok=True)
            if path.name.lower().startswith(_OF_DEBIAN):
                shutil.rmtree(path)
        roots = {package: folder / "root" / package for package in PACKAGES}
        _add_command(roots["nodewright"], folder)
        _add_agent(roots["nodewright-agent"], folder)
        version = version_of(wheel)
        return [_packed(package, version, root, out, time_s) for package, root in roots.items()]


def _add_command(root: Path, folder: Path) -> None:
    library = root / "usr/lib/nodewright"
    shutil.copytree(folder / "ours" / "nodewright", library / "nodewright")
    for path in (folder / "ours").glob("*.dist-info"):
        shutil.copytree(path, library / path.name)
    shutil.copytree(folder / "ours" / "share", root / "usr/share")
    shutil.copytree(folder / "command", library, dirs_exist_ok=True)
    (root / "usr/share/zsh/vendor-completions").mkdir()
    zsh = root / "usr/share/zsh"
    (zsh / "site-functions/_nodewright").rename(zsh / "vendor-completions/_nodewright")
    (zsh / "site-functions").rmdir()
    programs = root / "usr/bin"
    programs.mkdir()
    shutil.copy(SOURCES / "nodewright", programs / "nodewright")
    for name in ("kubectl-nodewright", "kubectl_complete-nodewright"):
        (programs / name).symlink_to("nodewright")
    for name in ("kubectl-nodewright", "kubectl_complete-nodewright"):
        (root / f"usr/share/man/man1/{name}.1").write_text(".so man1/nodewright.1\n")


def _add_agent(root: Path, folder: Path) -> None:
    shutil.copytree(folder / "server", root / "usr/lib/nodewright-agent")
    unit = root / "lib/systemd/system" / UNIT.name
    unit.parent.mkdir(parents=True)
    lines = UNIT.read_text("utf-8").replace("/usr/local/bin/", "/usr/bin/").splitlines(keepends=True)
    unit.write_text("".join(line for line in lines if "Copy to /etc" not in line))
    for name in ("static", "pods"):
        (root / "etc/nodewright" / name).mkdir(parents=True)
    shutil.copy(SOURCES / "kubelet.yaml", root / "etc/nodewright/kubelet.yaml")


def _packed(package: str, version: str, root: Path, out: Path, time_s: int) -> Path:
    library = root / f"usr/lib/{package}"
    documents = root / f"usr/share/doc/{package}"
    documents.mkdir(parents=True)
    (documents / "copyright").write_text(_copyright(library))
    stamp = format_datetime(datetime.fromtimestamp(time_s, UTC))
    entry = f"nodewright ({version}) unstable; urgency=medium\n\n  * See the release's own CHANGELOG.md.\n\n -- {MAINTAINER}  {stamp}\n"
    (documents / "changelog.gz").write_bytes(gzip.compress(entry.encode(), 9, mtime=0))
    for path in sorted(root.glob("usr/share/man/man1/*.1")):
        path.with_suffix(".1.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        path.unlink()
    if package in _OVERRIDES:
        place = root / "usr/share/lintian/overrides" / package
        place.parent.mkdir(parents=True)
        place.write_text(_OVERRIDES[package])
    for path in library.rglob("*.so*"):
        subprocess.run(["strip", "--strip-unneeded", path], check=True)
    _set_modes(root)
    _write_control(package, version, root)
    place = out / f"{package}_{version}_amd64.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    command = ["dpkg-deb", "-Zxz", "--root-owner-group", "--build", str(root), str(place)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return place


def _set_modes(root: Path) -> None:
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent == root / "usr/bin" else 0o644)


def _copyright(library: Path) -> str:
    """Our licence, and those of the packages that are brought along; their files are taken out of the directories."""
    parts = [
        f"nodewright is under the Apache License 2.0, see /usr/share/common-licenses/Apache-2.0.\nCopyright: {MAINTAINER}\n"
    ]
    for path in files_below(library):
        if re.match(r"(LICEN[CS]E|COPYING|NOTICE|AUTHORS)", path.name) and ".dist-info" in str(path):
            if not path.relative_to(library).parts[0].startswith("nodewright"):
                text = path.read_text("utf-8")
                if "TERMS AND CONDITIONS FOR USE, REPRODUCTION" in text:
                    text = "Apache License 2.0, see /usr/share/common-licenses/Apache-2.0."
                parts.append(f"{path.relative_to(library)}:\n\n{text}")
            path.unlink()
    return "\n\n".join(parts)


def _write_control(package: str, version: str, root: Path) -> None:
    control = root / "DEBIAN"
    control.mkdir()
    is_agent = package == "nodewright-agent"
    summary, description = _ABOUT[package]
    size_kib = sum(path.lstat().st_size for path in files_below(root)) // 1024
    fields = {
        "Package": package,
        "Version": version,
        "Architecture": "amd64",
        "Maintainer": MAINTAINER,
        "Installed-Size": str(size_kib),
        "Depends": f"{_DEPENDS}, nodewright (= {version}), init-system-helpers (>= 1.52)"
        if is_agent
        else _DEPENDS,
        "Section": "admin",
        "Priority": "optional",
        "Description": f"{summary}\n{textwrap.fill(description, 76, initial_indent=' ', subsequent_indent=' ')}",
    }
    (control / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    scripts = {
        "postinst": _POSTINST.format(name=package, more=_RELOAD if is_agent else ""),
        "prerm": _PRERM.format(name=package, more=_STOP if is_agent else ""),
        **({"postrm": _POSTRM} if is_agent else {}),
    }
    for name, text in scripts.items():
        (control / name).write_text(text)
        (control / name).chmod(0o755)
    if is_agent:
        (control / "conffiles").write_text("/etc/nodewright/kubelet.yaml\n")
    _write_sums(root, (path for path in files_below(root) if path.is_file() and not path.is_symlink()))


def _write_sums(root: Path, files: Iterable[Path]) -> None:
    lines = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(root)}\n"
        for path in files
        if path.relative_to(root).parts[0] not in {"DEBIAN", "etc"}
    ]
    (root / "DEBIAN/md5sums").write_text("".join(lines))


def main(arguments: list[str]) -> None:
    """Write build/deb from WHEEL."""
    (wheel,) = arguments
    out = ROOT / "build" / "deb"
    out.mkdir(parents=True, exist_ok=True)
    for path in build_packages(Path(wheel), out, int(datetime.now(UTC).timestamp())):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
