"""A release changes the tree as a whole or not at all, and only builds that are equal are published."""

import hashlib
import json
import subprocess
import tarfile
import zipfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import pytest

from nodewright.version import __version__
from tools.artefacts import corpus, release_notes
from tools.release import (
    CATEGORIES,
    PLACES,
    Builder,
    build_twice,
    current_version,
    fragments,
    hatch,
    main,
    with_release,
)
from tools.source import ROOT

NEW = "99.0.0"
MAX_WHEEL_BYTES = 2_800_000
"""What weighs in it is in docs/decisions/0036-size.md."""


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "State")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with the files that a release reads and writes."""
    root = tmp_path / "tree"
    for name in (*PLACES, "CHANGELOG.md", "SECURITY.md", "changes/README.md", ".gitignore"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((ROOT / name).read_text("utf-8"), "utf-8")
    (root / "changes" / "fixed.one.md").write_text("- Fixes\n  one.\n")
    (root / "changes" / "breaking.other.md").write_text("Renames another.\n")
    git(root, "init", "--quiet")
    commit(root)
    return root


def archives(source: Path, out: Path, time_s: int) -> None:
    version = current_version(source)
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.*") if path.is_file())
    (out / f"nodewright-{version}.tar.gz").write_text(f"{time_s} {names}")
    (out / f"nodewright-{version}-py3-none-any.whl").write_text(str(time_s))


def unequal_archives(source: Path, out: Path, time_s: int) -> None:
    (out / "nodewright.tar.gz").write_text(f"{source} {time_s}")


def message(root: Path, *arguments: str, build: Builder = archives) -> str:
    """The text with which the release ends."""
    with pytest.raises(SystemExit) as ended:
        main(arguments, root, build)
    assert isinstance(ended.value.code, str)
    return ended.value.code


def test_a_release_sets_the_version_in_every_place(tree: Path) -> None:
    main([NEW], tree, archives)
    for place in PLACES:
        text = (tree / place).read_text("utf-8")
        assert NEW in text
        assert __version__ not in text


def test_a_release_moves_the_fragments_into_the_changelog(tree: Path) -> None:
    main([NEW], tree, archives)
    changelog = (tree / "CHANGELOG.md").read_text("utf-8")
    assert "### Breaking\n\n- Renames another.\n\n### Fixed\n\n- Fixes one.\n\n## " in changelog
    assert changelog.index(f"## {NEW} (") < changelog.index(f"## {__version__} (")
    assert [path.name for path in (tree / "changes").iterdir()] == ["README.md"]


def test_the_checksums_are_those_of_the_files(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([NEW], tree, archives)
    dist = tree / "dist"
    lines = (dist / "SHA256SUMS").read_text("utf-8").splitlines()
    sums = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    files = {f"nodewright-{NEW}.tar.gz", f"nodewright-{NEW}-py3-none-any.whl"}
    assert set(sums) == {*files, "provenance.json", "RELEASE_NOTES.md"}
    assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in sums}
    assert f"git commit -a -m 'Release {NEW}'" in capsys.readouterr().out


def test_the_security_policy_supports_the_release(tree: Path) -> None:
    assert f"| {__version__.rpartition('.')[0]} | yes |" in (ROOT / "SECURITY.md").read_text("utf-8")
    main([NEW], tree, archives)
    text = (tree / "SECURITY.md").read_text("utf-8")
    assert f"| 99.0 | yes |\n| {__version__.rpartition('.')[0]} and older | no |\n" in text


def test_the_provenance_names_files_locks_and_the_commit(tree: Path) -> None:
    main([NEW], tree, archives)
    statement = json.loads((tree / "dist" / "provenance.json").read_text())
    inputs = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    # Nothing is committed yet, so no commit has these sources.
    assert all("gitCommit" not in each["digest"] for each in inputs)
    commit(tree)
    main(["--build"], tree, archives)
    statement = json.loads((tree / "dist" / "provenance.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    named = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    for name, digest in named.items():
        assert hashlib.sha256((tree / "dist" / name).read_bytes()).hexdigest() == digest
    assert set(named) == {f"nodewright-{NEW}.tar.gz", f"nodewright-{NEW}-py3-none-any.whl"}
    inputs = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert inputs[0]["digest"] == {"gitCommit": git(tree, "rev-parse", "HEAD").strip()}
    assert "packaging/kubernetes/requirements.lock" in {each["name"] for each in inputs}


def test_the_notes_have_the_changes_and_say_that_nothing_is_signed(tree: Path) -> None:
    main([NEW], tree, archives)
    notes = (tree / "dist" / "RELEASE_NOTES.md").read_text("utf-8")
    assert notes.startswith(f"# nodewright {NEW}\n")
    assert "- Renames another." in notes
    assert "Neither the\nchecksums nor `provenance.json` are signed" in notes
    assert f"pipx install './nodewright-{NEW}-py3-none-any.whl[cluster]'" in notes
    assert "\n### Breaking\n\n- Renames" in notes


def test_the_notes_say_what_each_file_is_for() -> None:
    names = (
        f"nodewright_recordings-{NEW}-py3-none-any.whl",
        f"nodewright-{NEW}-image.cdx.json",
        f"nodewright-{NEW}-chart.tgz",
    )
    notes = release_notes(NEW, "", dict.fromkeys(names, b"x" * 1500))
    recordings, sbom, chart = sorted(line for line in notes.splitlines() if line.startswith("| `"))[::-1]
    assert recordings.endswith(
        f"| 2 kB | what `nodewright verify` compares with: `pipx inject nodewright ./{names[0]}`, or pip |"
    )
    assert "CycloneDX" in sbom
    assert "Helm" in chart


def test_the_corpus_is_the_same_each_time_and_needs_none_of_our_code() -> None:
    content = corpus("1.2.3", 86400)
    assert corpus("1.2.3", 86400) == content
    with tarfile.open(fileobj=BytesIO(content)) as files:
        names = files.getnames()
        readme = files.extractfile("nodewright-corpus-1.2.3/README.md")
        assert readme is not None
        assert b"# The corpus of recorded decisions" in readme.read()
    assert {"nodewright-corpus-1.2.3/LICENSE", "nodewright-corpus-1.2.3/vectors/eviction.jsonl.gz"} <= set(
        names
    )
    assert [name for name in names if name.endswith(".py")] == []


def package_sums(tree: Path) -> list[str]:
    lines = (tree / "dist" / "SHA256SUMS").read_text().splitlines()
    return [line for line in lines if not line.endswith("  provenance.json")]  # it names the commit


def test_the_packages_of_a_commit_are_those_of_the_release(tree: Path) -> None:
    main([NEW], tree, archives)
    sums = package_sums(tree)
    commit(tree)
    (tree / ".git" / "info" / "exclude").write_text("notes.md\n")
    (tree / "notes.md").write_text("Not tracked.\n")
    main(["--build"], tree, archives)
    assert package_sums(tree) == sums


def test_builds_that_differ_are_not_published(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = message(tree, NEW, build=unequal_archives)
    assert text == "release: two builds differ: nodewright.tar.gz"
    assert not (tree / "dist").exists()
    assert "`git restore .` takes back the new version" in capsys.readouterr().err


def test_files_of_the_running_version_are_not_published_as_the_new_one(tree: Path) -> None:
    def build(source: Path, out: Path, time_s: int) -> None:
        archives(source, out, time_s)
        (out / f"nodewright_{__version__}_amd64.deb").write_text("")

    expected = f"release: not of version {NEW}: nodewright_{__version__}_amd64.deb"
    assert message(tree, NEW, build=build) == expected


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (__version__, f"{__version__} is not newer than {__version__}"),
        ("0.0.10", f"0.0.10 is not newer than {__version__}"),
        ("1.0", "1.0 is no version: it has three numbers, as 1.2.3"),
    ],
)
def test_a_version_that_is_not_newer_is_refused(tree: Path, version: str, text: str) -> None:
    assert message(tree, version) == f"release: {text}"


def test_uncommitted_changes_are_refused(tree: Path) -> None:
    (tree / "new.md").write_text("New.\n")
    expected = "release: the tree has uncommitted changes: commit or stash them"
    assert message(tree, NEW) == expected
    assert message(tree, "--build") == expected


def test_a_release_without_fragments_is_refused(tree: Path) -> None:
    for file in fragments(tree):
        file.unlink()
    commit(tree)
    assert message(tree, NEW) == "release: no fragments in changes/: nothing to release"


def test_a_fragment_without_a_category_is_refused(tree: Path) -> None:
    (tree / "changes" / "other.md").write_text("Other.\n")
    commit(tree)
    assert message(tree, NEW).startswith("release: changes/other.md: the name begins with one of breaking, ")


def test_a_dry_run_changes_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([NEW, "--dry-run"], tree, archives)
    output = capsys.readouterr().out
    assert f"set {__version__} to {NEW}" in output
    assert "- Renames another." in output
    assert git(tree, "status", "--porcelain") == ""
    assert not (tree / "dist").exists()


def test_a_release_goes_before_those_before_it() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    text = with_release(with_release(changelog, "## 1\n"), "## 2\n")
    assert text.index("## 2\n") < text.index("## 1\n")


def test_every_fragment_has_a_category() -> None:
    assert {path.name.split(".")[0] for path in fragments(ROOT)} <= set(CATEGORIES)


def test_no_other_file_names_the_version() -> None:
    folders = (ROOT / "packaging", ROOT / "docs" / "guide", ROOT / "src")
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in {".py", ".md", ".yaml", ".yml"}
    ]
    naming = {path.relative_to(ROOT).as_posix() for path in files if __version__ in path.read_text("utf-8")}
    assert naming == set(PLACES)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed: make setup")
def test_two_builds_of_this_tree_are_equal() -> None:
    files = build_twice(ROOT, hatch)
    wheel_name = f"nodewright-{__version__}-py3-none-any.whl"
    recordings = f"nodewright_recordings-{__version__}-py3-none-any.whl"
    assert set(files) == {f"nodewright-{__version__}.tar.gz", wheel_name, recordings}
    with zipfile.ZipFile(BytesIO(files[wheel_name])) as wheel:
        names = wheel.namelist()
    assert "nodewright/cli/lint.py" in names
    assert f"nodewright-{__version__}.data/data/share/man/man1/nodewright-lint.1" in names
    assert [
        name for name in names if name.endswith((".gz", ".pyi", ".proto", ".pyc")) or "test_" in name
    ] == []
    assert len(files[wheel_name]) < MAX_WHEEL_BYTES
    assert len(files[f"nodewright-{__version__}.tar.gz"]) < MAX_WHEEL_BYTES
