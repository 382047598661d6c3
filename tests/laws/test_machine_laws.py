import contextlib
import os
import re
import tempfile
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.machine_files import machine_files, write_machine_files

from nodewright.documents.output.text_layout import ASCII
from nodewright.documents.profiles.catalogue import catalogue
from nodewright.documents.profiles.machine.captured_machine import capture_copy
from nodewright.documents.profiles.machine.lscpu import read_lscpu, read_machine_info
from nodewright.documents.profiles.node_profiles import profile_from_bytes
from nodewright.documents.profiles.profile_yaml import profile_document, profile_yaml
from nodewright.model.errors import InputError
from nodewright.model.hardware import MachineInfo, machine_faults
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.predict.node_report.machine_drawing import CELLS_UP_TO_CPUS, machine_lines
from nodewright.testing.machines import machines

MEMORY = Path("/dev/shm")  # noqa: S108 - thousands of small files, faster in memory


def read_back(machine: MachineInfo) -> MachineInfo:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        written = write_machine_files(machine_files(machine), Path(directory))
        return capture_copy(written).profile.spec.machine_info


@given(machine=machines())
def test_a_machine_that_is_written_as_files_reads_back(machine: MachineInfo) -> None:
    assert read_back(machine) == machine


@given(machine=machines())
def test_machines_from_rows_have_no_contradictions(machine: MachineInfo) -> None:
    assert [fault for fault in machine_faults(machine) if not fault.tolerated] == []


SHAPES = {
    name: one for name, one in catalogue().items() if not one.is_recorded and one.architecture == "amd64"
}
FEW_CPUS = 100
"""A larger machine is written as thousands of files."""
SEED = int(os.environ.get("FAULT_SEED") or 0)
SHARE = int(os.environ.get("RECORDED_SHARE") or 6)
"""Of the larger ones, one in so many is written, others with each seed; `make soak` writes all."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if shape.machine.num_cores >= FEW_CPUS else ())
        for name, shape in SHAPES.items()
        if shape.machine.num_cores < FEW_CPUS or crc32(f"{name} {SEED}".encode()) % SHARE == 0
    ],
)
def test_a_shape_of_the_catalogue_is_what_the_kubelet_would_read(name: str) -> None:
    machine = SHAPES[name].machine
    assert read_back(machine) == machine


@given(machine=machines())
def test_a_profile_reads_back_from_its_yaml(machine: MachineInfo) -> None:
    profile = NodeProfile(spec=NodeProfileSpec(machine_info=machine))
    assert profile_from_bytes(profile_yaml(profile_document(profile)).encode(), "profile") == profile


@given(machine=machines())
def test_a_picture_names_every_cpu_once(machine: MachineInfo) -> None:
    """Each CPU stands in brackets, alone or with those of its core; on large machines behind the number of alike cores."""
    drawn = " ".join(machine_lines(machine, 1000 if machine.num_cores > CELLS_UP_TO_CPUS else 100, ASCII))
    cells = re.findall(r"(?:\[ *|cores? x \d+: )([\d,-]+)", drawn)
    numbers = [
        number
        for cell in cells
        for part in cell.split(",")
        for number in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
    ]
    assert sorted(numbers) == list(range(machine.num_cores))


SMALL = machine_files(catalogue()["1s-2n-4c-smt2"].machine)
TORN = st.sampled_from(
    ["", "\n", "x", "-1", "0-", "-", "0,,1", "9" * 25, "10 10", "MemTotal: 1 kB", "ff,", "\x00", "é"]
)


@given(damage=st.dictionaries(st.sampled_from(sorted(SMALL)), st.none() | TORN, min_size=1, max_size=3))
def test_damaged_files_are_rejected_with_reasons_or_read(damage: dict[str, str | None]) -> None:
    """Files that lack (None), are empty or torn: an InputError or a machine, never anything else."""
    files = {path: damage.get(path, text) for path, text in SMALL.items()}
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        kept = {path: text for path, text in files.items() if text is not None}
        with contextlib.suppress(InputError):
            capture_copy(write_machine_files(kept, Path(directory)))


@given(
    content=st.binary(max_size=60)
    | st.sampled_from([b"{", b'{"cpus": [{}]}', b'{"lscpu": [{"field": "CPU(s):"}]}'])
)
def test_any_bytes_are_refused_or_read_as_descriptions(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        for reader in (read_lscpu, lambda paths: read_machine_info(paths[0])):
            with contextlib.suppress(InputError):
                reader([Path(file.name)])
