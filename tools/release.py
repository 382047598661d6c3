"""A release: `python -m tools.release 0.4.0` sets the version, gathers changes/ into CHANGELOG.md and builds all files in dist/.

Each visible change has a file `category.slug.md` in changes/, so that branches do not conflict. A release gathers them by
category, newest release first, and removes the files. `--dry-run` shows what it would do.

All files are built twice, wheel and sdist from copies of the tracked files in different directories, and have to be equal to the
byte. `tests/tools/test_artefacts.py` installs them: run `make soak` before.
SOURCE_DATE_EPOCH is the day of the release in CHANGELOG.md, midnight UTC: `python -m tools.release --build` repeats the build
from a commit, for example after CHANGELOG.md has been edited.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from nodewright.version import __version__
from tools.source import ROOT

VERSION_FILE = "src/nodewright/version.py"
PLACES = (
    VERSION_FILE,
    "docs/guide/deploy.md",
    "packaging/helm/nodewright/Chart.yaml",
    "packaging/kubernetes/base/kustomization.yaml",
)
"""The files that name the version of the package."""

CATEGORIES = ("breaking", "added", "changed", "removed", "performance", "fixed", "security")
MARK = "<!-- releases -->\n"
_LINE_WIDTH = 120

Builder = Callable[[Path, Path, int], None]
"""Builds the files of a release from a copy of the source, into a directory, at a time in seconds since 1970."""


def section(version: str, date: str, changes: dict[str, list[str]]) -> str:
    r"""The section of a release: a point for each change, by category.

    >>> print(section("0.2.0", "2027-01-31", {"fixed": ["- One\n  thing."], "added": ["Another."]}), end="")
    ## 0.2.0 (2027-01-31)
    <BLANKLINE>
    ### Added
    <BLANKLINE>
    - Another.
    <BLANKLINE>
    ### Fixed
    <BLANKLINE>
    - One thing.
    """
    lines = [f"## {version} ({date})", ""]
    for category in CATEGORIES:
        if texts := changes.get(category):
            lines += [f"### {category.capitalize()}", "", *map(_point, texts), ""]
    return "\n".join(lines)


def _point(text: str) -> str:
    # A fragment may be a point of a list already.
    words = " ".join(text.split()).removeprefix("- ")
    return textwrap.fill(
        f"- {words}",
        _LINE_WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def with_release(changelog: str, release: str) -> str:
    """The changelog with the release in front of those before it."""
    head, mark, rest = changelog.partition(MARK)
    assert mark, "CHANGELOG.md has lost its mark"
    return f"{head}{mark}\n{release}{rest}"


def with_version(text: str, old: str, new: str) -> str:
    """The text with the new version wherever it names the old one.

    >>> with_version("tag: 0.2.0, not 10.2.0 or 0.2.0.1", "0.2.0", "0.3.0")
    'tag: 0.3.0, not 10.2.0 or 0.2.0.1'
    """
    return re.sub(rf"(?<![\d.]){re.escape(old)}(?!\.?\d)", new, text)


def with_supported(text: str, version: str) -> str:
    r"""SECURITY.md with the minor release as the one that is supported, and those before it as not.

    >>> with_supported("| 0.4 | yes |\n| 0.3 and older | no |\n", "0.5.0")
    '| 0.5 | yes |\n| 0.4 and older | no |\n'
    """
    minor = version.rpartition(".")[0]
    old = re.search(r"^\| (\S+) \| yes \|$", text, re.MULTILINE)
    assert old, "SECURITY.md names no supported release"
    if old[1] == minor:
        return text
    rows = f"| {minor} | yes |\n| {old[1]} and older | no |"
    return re.sub(r"^\| \S+ \| yes \|\n\| \S+ and older \| no \|$", rows, text, flags=re.MULTILINE)


def current_version(root: Path) -> str:
    """The version that the source names."""
    match = re.search(r'__version__ = "(.+)"', (root / VERSION_FILE).read_text("utf-8"))
    assert match, f"{VERSION_FILE} names no version"
    return match[1]


def fragments(root: Path) -> list[Path]:
    """The files of the changes since the last release."""
    return sorted(path for path in (root / "changes").glob("*.md") if path.name != "README.md")


def refusal(root: Path, version: str | None) -> str | None:
    """Why the tree cannot be released as that version, or, without one, not be built; None if it can."""
    if _git(root, "status", "--porcelain"):
        return "the tree has uncommitted changes: commit or stash them"
    if version is None:
        return None
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return f"{version} is no version: it has three numbers, as 1.2.3"
    current = current_version(root)
    if _numbers(version) <= _numbers(current):
        return f"{version} is not newer than {current}"
    files = fragments(root)
    if not files:
        return "no fragments in changes/: nothing to release"
    for file in files:
        if file.name.split(".")[0] not in CATEGORIES:
            return f"changes/{file.name}: the name begins with one of {', '.join(CATEGORIES)}"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def release_section(root: Path, version: str, date: str) -> str:
    """The section of the release from the fragments."""
    changes: dict[str, list[str]] = {}
    for file in fragments(root):
        changes.setdefault(file.name.split(".")[0], []).append(file.read_text("utf-8"))
    return section(version, date, changes)


def write_release(root: Path, version: str, date: str) -> None:
    """Sets the version, and moves the fragments into CHANGELOG.md."""
    current = current_version(root)
    for place in PLACES:
        path = root / place
        path.write_text(with_version(path.read_text("utf-8"), current, version), "utf-8")
    security = root / "SECURITY.md"
    security.write_text(with_supported(security.read_text("utf-8"), version), "utf-8")
    changelog = root / "CHANGELOG.md"
    text = with_release(changelog.read_text("utf-8"), release_section(root, version, date))
    changelog.write_text(text, "utf-8")
    for file in fragments(root):
        file.unlink()


def epoch_s(changelog: str, version: str) -> int:
    """The time of the build: midnight UTC of the day on which the changelog dates the version.

    >>> epoch_s("## 0.2.0 (1970-01-02)", "0.2.0")
    86400
    """
    match = re.search(rf"^## {re.escape(version)} \((\S+)\)$", changelog, re.MULTILINE)
    assert match, f"CHANGELOG.md has no section of {version}"
    return int(datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp())


def hatch(source: Path, out: Path, time_s: int) -> None:
    """Builds wheel and sdist with the installed hatchling."""
    for place in (source, source / "packaging" / "recordings"):
        # Without -P the folders of the source would hide modules of the environment.
        command = [sys.executable, "-P", "-m", "hatchling", "build", "-d", str(out)]
        command += ["-t", "wheel"] if place != source else []
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
        ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode:
            sys.exit(f"release: the build fails:\n{ran.stderr.strip()}")


def build_all(source: Path, out: Path, time_s: int) -> None:
    """Builds every file of a release; needs a network, Debian 12 and its tools."""
    from tools import artefacts  # noqa: PLC0415 - krew and tests need none of it

    hatch(source, out, time_s)
    version = current_version(source)
    artefacts.build_artefacts(out, version, time_s)
    (out / f"nodewright-{version}-krew.tar.gz").write_bytes(archive(version))


def build_twice(root: Path, build: Builder) -> dict[str, bytes]:
    """The files of the release by name; ends the program if two builds differ, or are of another version."""
    version = current_version(root)
    time_s = epoch_s((root / "CHANGELOG.md").read_text("utf-8"), version)
    first, second = (_built(root, build, time_s) for _ in range(2))
    if different := sorted(name for name in first | second if first.get(name) != second.get(name)):
        sys.exit(f"release: two builds differ: {', '.join(different)}")
    if others := [name for name in first if version not in name]:
        sys.exit(f"release: not of version {version}: {', '.join(others)}")
    return first


def _built(root: Path, build: Builder, time_s: int) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "source", Path(folder) / "out"
        out.mkdir()
        # Tracked files alone: what else lies in the tree is no part of a release.
        for name in filter(None, _git(root, "ls-files", "-z").split("\0")):
            if (root / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, source / name)
        build(source, out, time_s)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.name != ".gitignore"}


def write_dist(root: Path, files: dict[str, bytes], version: str) -> None:
    """Writes the files, provenance, notes, and their checksums as `sha256sum -c SHA256SUMS` reads them."""
    from tools import artefacts  # noqa: PLC0415 - krew needs none of it

    dist = root / "dist"
    dist.mkdir(exist_ok=True)
    commit = "" if _git(root, "status", "--porcelain") else _git(root, "rev-parse", "HEAD").strip()
    changes = (
        (root / "CHANGELOG.md").read_text("utf-8").partition(f"\n## {version} ")[2].partition("\n## ")[0]
    )
    notes = artefacts.release_notes(version, changes, files).encode()
    files = {
        **files,
        "provenance.json": artefacts.provenance(files, version, commit),
        "RELEASE_NOTES.md": notes,
    }
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    for name, content in files.items():
        (dist / name).write_bytes(content)
    (dist / "SHA256SUMS").write_text("".join(f"{sums[name]}  {name}\n" for name in sums), "utf-8")
    print(*(f"dist/{name}" for name in [*files, "SHA256SUMS"]), sep="\n")


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str], root: Path = ROOT, build: Builder = build_all) -> None:
    """Release a version, or build the present one again."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Release a version.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("version", nargs="?", metavar="VERSION", help="the new version, as 1.2.3")
    what.add_argument("--build", action="store_true", help="build the present version again")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done")
    options = parser.parse_args(arguments)
    if reason := refusal(root, options.version):
        sys.exit(f"release: {reason}")
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    version = options.version or current_version(root)
    if options.dry_run:
        if options.version:
            print(f"set {current_version(root)} to {version} in {', '.join(PLACES)}")
            print(f"move {len(fragments(root))} fragments of changes/ to CHANGELOG.md:\n")
            print(release_section(root, version, date))
        print(
            f"build the files of {version} twice, and write them, provenance, notes and SHA256SUMS to dist/"
        )
        return
    if build is build_all and find_spec("hatchling") is None:
        sys.exit("release: hatchling is missing: `make setup` installs it")
    if options.version:
        write_release(root, version, date)
    try:
        write_dist(root, build_twice(root, build), version)
    except BaseException:
        if options.version:
            print("release: `git restore .` takes back the new version", file=sys.stderr)
        raise
    if options.version:
        print("\nRead CHANGELOG.md. Then:\n")
        print(f"  git commit -a -m 'Release {version}'\n  python -m tools.release --build")
        print(f"  git tag -a v{version} -m 'nodewright {version}'")


LAUNCHER = ROOT / "packaging" / "krew" / "kubectl-nodewright"
OUT = ROOT / "build" / "krew"


def archive(version: str) -> bytes:
    """The archive of the plugin: launcher and licence, the same bytes for the same version."""
    files = {
        "kubectl-nodewright": (LAUNCHER.read_text("utf-8").replace("VERSION", version), 0o755),
        "LICENSE": ((ROOT / "LICENSE").read_text("utf-8"), 0o644),
    }
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as contents:
        for name, (text, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), mode
            contents.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(tar.getvalue(), mtime=0)


def manifest(version: str, url: str, content: bytes) -> dict[str, Any]:
    """The manifest for the krew index."""
    platforms = [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "nodewright"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Predict and explain the kubelet's decisions",
            "description": (
                "Gives the kubelet's own answer about a pod's resources: verdict, CPUs, NUMA nodes, devices, eviction\n"
                "victims, quota; the reason, and the smallest change that flips it.\n"
            ),
            "caveats": "Needs nodewright, installed from its source with pipx, uv or pip; and Python 3.11.\n",
            "platforms": [
                {
                    "selector": {"matchExpressions": platforms},
                    "uri": url,
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bin": "kubectl-nodewright",
                    "files": [{"from": "kubectl-nodewright", "to": "."}, {"from": "LICENSE", "to": "."}],
                }
            ],
        },
    }


def write_krew_plugin() -> None:
    """Writes archive and manifest."""
    (url,) = sys.argv[1:]
    version = __version__
    content = archive(version)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / Path(url).name).write_bytes(content)
    text = yaml.safe_dump(manifest(version, url, content), sort_keys=False)
    (OUT / "nodewright.yaml").write_text(text, "utf-8")
    print(f"{OUT.relative_to(ROOT)}: {Path(url).name}, nodewright.yaml")


if __name__ == "__main__":
    main(sys.argv[1:])
