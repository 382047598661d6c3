"""The exporter's process: what it warns of."""

import asyncio
from pathlib import Path

import click
import pytest

from nodewright.cluster.serving.key_pair import ensure_key_pair
from nodewright.cluster.tasks.timing import HostClock
from nodewright.scheduling.exporter.export_options import ExportOptions, export_options
from nodewright.scheduling.exporter.run_export import _exporter


def options(root: Path, *arguments: str) -> ExportOptions:
    """The options of a command line."""
    parsed: list[ExportOptions] = []

    def command(read: ExportOptions) -> int:
        parsed.append(read)
        return 0

    line = ["--kubelet-root", str(root), *arguments]
    click.command()(export_options(command)).main(line, standalone_mode=False)
    return parsed[0]


def started(chosen: ExportOptions) -> None:
    """Assembles an exporter."""

    async def assemble() -> None:
        async with _exporter(chosen, HostClock()):
            pass

    asyncio.run(assemble())


def test_a_kubelet_that_is_not_verified_is_worth_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = ensure_key_pair(tmp_path / "keys", "localhost", ("127.0.0.1",)).certificate
    kubelet = ("--kubelet-url", "https://user:secret@127.0.0.1:10250")
    capsys.readouterr()
    started(options(tmp_path, *kubelet))
    warning = capsys.readouterr().err
    assert warning.count("warning: without --kubelet-certificate-authority ") == 1
    assert "secret" not in warning
    started(options(tmp_path, *kubelet, "--kubelet-certificate-authority", str(authority)))
    started(options(tmp_path))
    assert "warning" not in capsys.readouterr().err
