"""The exporter's process: what it warns of."""

from pathlib import Path

import click

from nodewright.scheduling.exporter.export_options import ExportOptions, export_options
from nodewright.scheduling.exporter.run_export import kubelet_warning


def options(root: Path, *arguments: str) -> ExportOptions:
    """The options of a command line."""
    parsed: list[ExportOptions] = []

    def command(read: ExportOptions) -> int:
        parsed.append(read)
        return 0

    line = ["--kubelet-root", str(root), *arguments]
    click.command()(export_options(command)).main(line, standalone_mode=False)
    return parsed[0]


def test_a_kubelet_that_is_not_verified_is_worth_a_warning(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.touch()
    kubelet = ("--kubelet-url", "https://user:secret@127.0.0.1:10250")
    warning = kubelet_warning(options(tmp_path, *kubelet))
    assert "--kubelet-certificate-authority" in warning
    assert "secret" not in warning
    verified = options(tmp_path, *kubelet, "--kubelet-certificate-authority", str(authority))
    assert not kubelet_warning(verified)
    assert not kubelet_warning(options(tmp_path))
