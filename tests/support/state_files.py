"""The managers' state files of a kubelet's directory as another release writes them, and with other members."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodewright.documents.formats.go_checkpoint import checksum
from nodewright.documents.profiles.kubelet_root import read_kubelet_root
from nodewright.documents.profiles.state_files.cpu_manager_state import cpu_state_file
from nodewright.documents.profiles.state_files.memory_manager_state import memory_state_file
from nodewright.model.reasons.verdict import Granted
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.idset import CPUSet

STATE_FILES = ("cpu_manager_state", "memory_manager_state")


def rewrite_state_files(root: Path, release: str, pods: Mapping[str, str] | None = None) -> None:
    """Rewrites the files as a kubelet of the release does, with these CPUs of the pod level and its gate on if any."""
    read, rules = read_kubelet_root(root), RELEASE_TABLES[release].rules
    assert read.cpu is not None
    assert read.memory is not None
    assert isinstance(read.cpu.verdict, Granted)
    assert isinstance(read.memory.verdict, Granted)
    held = {uid: CPUSet.parse(text) for uid, text in (pods or {}).items()}
    config, gate = read.loaded.config, pods is not None
    cpus = cpu_state_file(
        replace(read.cpu.verdict.value, pods=held), config.cpu_manager_policy, pod_level=gate, rules=rules
    )
    memory = memory_state_file(
        read.memory.verdict.value, config.memory_manager_policy, pod_level=gate, rules=rules
    )
    for name, content in zip(STATE_FILES, (cpus, memory), strict=True):
        (root / name).write_bytes(content)


def change_members(file: Path, **members: Any) -> None:
    """Rewrites the file with other members."""
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **members}))


def change_data(file: Path, **members: Any) -> None:
    """Rewrites the file with other members in `data`, and the checksum of that."""
    text = json.dumps({**json.loads(json.loads(file.read_bytes())["data"]), **members})
    change_members(file, data=text, dataChecksum=checksum(f"(string){text}"))
