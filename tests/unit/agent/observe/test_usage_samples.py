"""The history of usage that an agent that lends keeps beside its state."""

import stat
from pathlib import Path
from typing import Any, Self

import pytest

from nodewright.agent.observe import usage_samples
from nodewright.agent.observe.usage_samples import HISTORY, OLD_HISTORY, append_history

LINES = ["60,shop/web,100m,2048Ki\n"]


def test_nobody_else_reads_the_history(tmp_path: Path) -> None:
    append_history(tmp_path, LINES)
    append_history(tmp_path, LINES)
    assert (tmp_path / HISTORY).read_text() == f"time,pod,cpu,memory\n{LINES[0]}{LINES[0]}"
    assert stat.S_IMODE((tmp_path / HISTORY).stat().st_mode) == 0o600


def test_a_full_history_becomes_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_samples, "MAX_HISTORY_BYTES", 30)
    append_history(tmp_path, LINES)
    append_history(tmp_path, LINES)
    assert (tmp_path / HISTORY).read_text() == (tmp_path / OLD_HISTORY).read_text()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_history(tmp_path, LINES)
    before = (tmp_path / HISTORY).read_bytes()

    class FullDisk:
        """A file that takes half of what is written."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._file = open(*arguments, **options)  # noqa: PTH123, SIM115 - as the code opens it

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, content: bytes) -> int:
            return int(self._file.write(content[: len(content) // 2]))

    monkeypatch.setattr(usage_samples, "open", FullDisk, raising=False)
    with pytest.raises(OSError, match="No space left"):
        append_history(tmp_path, LINES)
    assert (tmp_path / HISTORY).read_bytes() == before
