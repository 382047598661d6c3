import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodewright.documents.profiles.catalogue import catalogue
from nodewright.documents.profiles.machine.captured_machine import capture_machine_info
from nodewright.documents.profiles.machine.host_facts import MachineFact
from nodewright.model.errors import InputError

SNC = catalogue()["xeon-8480-2s-snc4"].machine


def write_document(tmp_path: Path, document: object) -> Path:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(document))
    return file


def described(**more: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(SNC))
    return document | more


def test_a_machine_info_is_taken_as_it_is(tmp_path: Path) -> None:
    document = described(timestamp="2026-01-01T00:00:00Z", cpu_frequency_khz=3_000_000, swap_capacity=4096)
    captured_machine = capture_machine_info(write_document(tmp_path, document))
    assert captured_machine.profile.spec.machine_info == SNC
    assert captured_machine.profile.spec.swap_bytes == 4096
    assert MachineFact.SWAP not in {lack.fact for lack in captured_machine.missing}


def test_nulls_are_empty_as_go_writes_them(tmp_path: Path) -> None:
    document = {
        "num_cores": 1,
        "topology": [{"node_id": 0, "cores": [{"thread_ids": [0], "uncore_caches": None}]}],
    }
    captured_machine = capture_machine_info(write_document(tmp_path, document))
    assert captured_machine.profile.spec.machine_info.topology[0].cores[0].uncore_caches == ()
    assert MachineFact.SWAP in {lack.fact for lack in captured_machine.missing}


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ([], "must be one MachineInfo"),
        ({"topology": []}, "must be one MachineInfo"),
        ({"num_cores": "4"}, r"Expected `int`, got `str` - at `\$.num_cores`"),
        (described(num_cores=7), "num_cores: Invalid value: 7"),
    ],
)
def test_an_invalid_machine_info_is_an_error(document: object, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rule):
        capture_machine_info(write_document(tmp_path, document))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        capture_machine_info(tmp_path / "none.json")
