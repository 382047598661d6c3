from importlib import metadata
from pathlib import Path

import pytest

from nodewright.engine.core.cpu.cpu_policy import CPUPicker
from nodewright.engine.core.topology.custom import TopologyPolicy, annotated_policy
from nodewright.model.errors import InputError
from nodewright.predict.policy_registry import PolicyRegistry, installed_policies, load_policies

PICKER = '''
from nodewright.policies import CPUSet, cpu_picker

@cpu_picker("{name}")
def picks(request):
    """Any."""
    return CPUSet()
'''


def write_module(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def faults(*files: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_policies(files)
    return [str(fault).replace(files[0], "FILE") for fault in caught.value.faults]


def test_policies_of_files_are_added_to_the_built_in_ones(tmp_path: Path) -> None:
    registry = load_policies([write_module(tmp_path, PICKER.format(name="mine"))])
    assert [policy.name for policy in registry.of_kind(CPUPicker)] == ["mine", "whole-caches"]
    assert registry.find(CPUPicker, "mine", source="--cpu-picker").description == "Any."
    assert registry.find(TopologyPolicy, "pod-wish", source="--topology-policy") is annotated_policy


def test_a_file_that_only_imports_a_built_in_policy_defines_none(tmp_path: Path) -> None:
    assert faults(write_module(tmp_path, "from nodewright.policies import annotated_policy")) == [
        "FILE: defines no policy"
    ]


def test_a_policy_name_is_unique(tmp_path: Path) -> None:
    first = write_module(tmp_path, PICKER.format(name="whole-caches"))
    assert faults(first) == [
        'FILE: Invalid value: "whole-caches": nodewright already defines a CPU picker of this name'
    ]
    first_file, second_file = (
        write_module(tmp_path, PICKER.format(name="mine"), f"{name}.py") for name in "ab"
    )
    (fault,) = faults(second_file, first_file)
    assert fault.endswith("FILE already defines a CPU picker of this name")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import nodewright\nnodewright.nothing\n", "FILE:2: fails when run: AttributeError: module"),
        ("def f(:\n", "FILE:1: fails when run: SyntaxError: "),
        (
            PICKER.format(name="A B"),
            "FILE:4: fails when run: ValueError: CPU picker 'A B': a name consists of lowercase",
        ),
    ],
)
def test_a_failure_in_a_file_names_the_line(tmp_path: Path, text: str, expected: str) -> None:
    assert faults(write_module(tmp_path, text))[0].startswith(expected)


def test_other_files_are_rejected(tmp_path: Path) -> None:
    assert faults(write_module(tmp_path, "", "policies.txt")) == ["FILE: is not a Python file (*.py)"]
    assert faults(str(tmp_path / "none.py")) == ["FILE: is not a file"]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (TopologyPolicy, "pod-wihs", "did you mean pod-wish?"),
        (CPUPicker, "x", "there are whole-caches"),
        (TopologyPolicy, "restricted", "is the kubelet's own policy: choose it in the kubelet configuration"),
    ],
)
def test_an_unknown_name_is_reported_with_the_known_ones(
    kind: type[TopologyPolicy], name: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        PolicyRegistry().find(kind, name, source="--option")
    assert str(caught.value).startswith(f'--option: Invalid value: "{name}"')
    assert str(caught.value).endswith(expected)


def test_installed_packages_provide_policies_by_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(tmp_path, PICKER.format(name="theirs"), "their_policies.py")
    metadata_folder = tmp_path / "theirs-1.0.dist-info"
    metadata_folder.mkdir()
    (metadata_folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = "[nodewright.policies]\nall = their_policies\nalone = their_policies:picks\n"
    (metadata_folder / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [policy.name for policy in installed_policies()] == ["theirs", "theirs"]
    assert PolicyRegistry().find(CPUPicker, "theirs", source="--cpu-picker").name == "theirs"
    (metadata_folder / "entry_points.txt").write_text("[nodewright.policies]\nbad = their_policies:nothing\n")
    with pytest.raises(InputError, match=r"entry point bad of nodewright\.policies: cannot be loaded"):
        installed_policies()
    assert metadata.version("theirs") == "1.0"
