"""All files of a release: `python -m tools.release` builds them twice and writes them with checksums, provenance and notes.

The provenance is a statement of in-toto with the predicate of SLSA v1. It is not signed: it says what was built from what, and proves
nothing about who built it.
"""

import gzip
import io
import json
import math
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from nodewright.model.releases.release_table import RELEASE_TABLES
from tools.bundle import COMMAND_LOCK, SERVER_LOCK, files_below
from tools.deb import build_packages
from tools.image import download_debian, image
from tools.pyz import pyz
from tools.source import ROOT

CORPUS = ("vectors", "releases", "claims")
"""The directories of tests/conformance with recorded decisions."""
MACHINES = ROOT / "src/nodewright/documents/profiles/data/machines.json"
LOCKS = (COMMAND_LOCK, SERVER_LOCK, ROOT / "packaging" / "kubernetes" / "build.lock")
_ABOUT = {
    "-py3-none-any.whl": "`pipx install './{name}[cluster]'`, or uv, pip",
    "_recordings-{version}-py3-none-any.whl": "what `nodewright verify` compares with: `pipx inject nodewright ./{name}`, or pip",
    ".tar.gz": "the source that builds the wheel",
    ".pyz": "one file for Linux without pip: `python3 {name}`",
    ".deb": "Debian 12: `apt-get install ./{name}`",
    "-image.tar": "`ctr images import {name}`, `podman load -i {name}`",
    "-image.cdx.json": "the packages in the image, CycloneDX",
    "-corpus.tar.gz": "recorded decisions of Kubernetes for other programs",
    "-chart.tgz": "Helm",
    "-krew.tar.gz": "the plugin for kubectl; it runs the installed nodewright",
}


def build_artefacts(out: Path, version: str, time_s: int) -> None:
    """Adds everything that is made of the wheel, or of files of the repository, to a directory with the wheel."""
    wheel = out / f"nodewright-{version}-py3-none-any.whl"
    (out / f"nodewright-{version}.pyz").write_bytes(pyz(wheel, time_s))
    build_packages(wheel, out, time_s)
    debian = ROOT / "build" / "image" / "debian"
    if not debian.is_dir():  # the second build is of the same packages
        download_debian(debian)
    archive, sbom = image(wheel, debian, time_s)
    (out / f"nodewright-{version}-image.tar").write_bytes(archive)
    (out / f"nodewright-{version}-image.cdx.json").write_bytes(sbom)
    (out / f"nodewright-{version}-corpus.tar.gz").write_bytes(corpus(version, time_s))
    chart = ROOT / "packaging" / "helm" / "nodewright"
    files = {f"nodewright/{path.relative_to(chart)}": path.read_bytes() for path in files_below(chart)}
    (out / f"nodewright-{version}-chart.tgz").write_bytes(packed(files, time_s))


def corpus(version: str, time_s: int) -> bytes:
    """The archive of recorded decisions with their description and licence."""
    top, recorded = f"nodewright-corpus-{version}", ROOT / "tests" / "conformance"
    files = {f"{top}/README.md": (ROOT / "docs" / "reference" / "corpus.md").read_bytes()}
    files[f"{top}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{top}/machines.json"] = MACHINES.read_bytes()
    for name in CORPUS:
        files |= {
            f"{top}/{path.relative_to(recorded)}": path.read_bytes() for path in files_below(recorded / name)
        }
    return packed(files, time_s)


def packed(files: Mapping[str, bytes], time_s: int) -> bytes:
    """An archive that is the same for the same files and time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(files[name]), time_s, 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    return gzip.compress(buffer.getvalue(), 9, mtime=0)


def provenance(files: Mapping[str, bytes], version: str, commit: str) -> bytes:
    """What was built of what, as a statement of in-toto with the predicate of SLSA v1; ``commit`` is empty for a tree that is none."""
    dependencies: list[dict[str, Any]] = [
        {"name": str(lock.relative_to(ROOT)), "digest": {"sha256": sha256(lock.read_bytes()).hexdigest()}}
        for lock in LOCKS
    ]
    if commit:
        dependencies.insert(0, {"name": "source", "digest": {"gitCommit": commit}})
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": sha256(content).hexdigest()}}
            for name, content in sorted(files.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:nodewright:release:v1",
                "externalParameters": {"version": version},
                "resolvedDependencies": dependencies,
            },
            "runDetails": {"builder": {"id": "urn:nodewright:unsigned-local-build"}},
        },
    }
    return json.dumps(statement, indent=1).encode() + b"\n"


def release_notes(version: str, changes: str, files: Mapping[str, bytes]) -> str:
    """The notes of a release: what changed, its files, and what holds of them."""
    rows = []
    for name in sorted(files):
        endings = {each.format(version=version): about for each, about in _ABOUT.items()}
        ending = max(filter(name.endswith, endings), key=len)
        size = f"{math.ceil(len(files[name]) / 1e3):,} kB"
        rows.append(f"| `{name}` | {size} | {endings[ending].format(name=name)} |")
    releases = [*RELEASE_TABLES]
    return "\n".join(
        [
            f"# nodewright {version}",
            "",
            f"For Kubernetes {releases[0]} to {releases[-1]}, Python 3.11 to 3.14. Check the files with `sha256sum -c SHA256SUMS`. Neither the",
            "checksums nor `provenance.json` are signed: get them from a place that you trust.",
            "",
            "| File | Size | |",
            "|---|---|---|",
            *rows,
            "",
            "## Changes",
            "",
            changes.partition("\n")[2].strip(),
            "",
        ]
    )
