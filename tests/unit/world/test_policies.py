from importlib import metadata
from pathlib import Path

import pytest

from nodewright.core.cpu.own import CPUPicker
from nodewright.core.topology import TopologyPolicy
from nodewright.core.topology.pod_wish import pod_wish
from nodewright.world.errors import InputError
from nodewright.world.policies import Registry, installed, registry

PICKER = '''
from nodewright.policies import CPUSet, cpu_picker

@cpu_picker("{name}")
def picks(asked):
    """Any."""
    return CPUSet()
'''


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def faults(*files: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        registry(files)
    return [str(fault).replace(files[0], "FILE") for fault in caught.value.faults]


def test_policies_of_files_stand_beside_ours(tmp_path: Path) -> None:
    found = registry([written(tmp_path, PICKER.format(name="mine"))])
    assert [one.name for one in found.of_kind(CPUPicker)] == ["mine", "whole-caches"]
    assert found.find(CPUPicker, "mine", asked="--cpu-picker").about == "Any."
    assert found.find(TopologyPolicy, "pod-wish", asked="--topology-policy") is pod_wish


def test_a_file_that_only_imports_ours_brings_none(tmp_path: Path) -> None:
    assert faults(written(tmp_path, "from nodewright.policies import pod_wish")) == ["FILE: has no policy"]


def test_a_name_belongs_to_one(tmp_path: Path) -> None:
    first = written(tmp_path, PICKER.format(name="whole-caches"))
    assert faults(first) == [
        'FILE: Invalid value: "whole-caches": nodewright has a CPU picker of this name, too'
    ]
    one, other = (written(tmp_path, PICKER.format(name="mine"), f"{name}.py") for name in "ab")
    (said,) = faults(other, one)
    assert said.endswith("FILE has a CPU picker of this name, too")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nodewright\nnodewright.nothing\n", "FILE:2: cannot be run: AttributeError: module"),
        ("def f(:\n", "FILE:1: cannot be run: SyntaxError: "),
        (
            PICKER.format(name="A B"),
            "FILE:4: cannot be run: ValueError: CPU picker 'A B': a name is of small",
        ),
    ],
)
def test_a_file_that_fails_says_where(tmp_path: Path, text: str, said: str) -> None:
    assert faults(written(tmp_path, text))[0].startswith(said)


def test_what_is_no_python_file_is_none(tmp_path: Path) -> None:
    assert faults(written(tmp_path, "", "policies.txt")) == ["FILE: is no Python file (*.py)"]
    assert faults(str(tmp_path / "none.py")) == ["FILE: is no file"]


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        (TopologyPolicy, "pod-wihs", "did you mean pod-wish?"),
        (CPUPicker, "x", "there are whole-caches"),
        (TopologyPolicy, "restricted", "is the kubelet's own: its configuration chooses it"),
    ],
)
def test_a_name_that_nobody_has_is_told_with_those_that_there_are(
    kind: type[TopologyPolicy], name: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        Registry().find(kind, name, asked="--option")
    assert str(caught.value).startswith(f'--option: Invalid value: "{name}"')
    assert str(caught.value).endswith(said)


def test_installed_packages_bring_policies_by_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, PICKER.format(name="theirs"), "their_policies.py")
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = "[nodewright.policies]\nall = their_policies\nalone = their_policies:picks\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [one.name for one in installed()] == ["theirs", "theirs"]
    assert Registry().find(CPUPicker, "theirs", asked="--cpu-picker").name == "theirs"
    (about / "entry_points.txt").write_text("[nodewright.policies]\nbad = their_policies:nothing\n")
    with pytest.raises(InputError, match=r"entry point bad of nodewright\.policies: cannot be loaded"):
        installed()
    assert metadata.version("theirs") == "1.0"
