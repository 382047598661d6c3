"""`nodewright examples`: lists the example files that the guide's commands read, or copies them."""

import shutil
from importlib import resources
from pathlib import Path

import click

from nodewright.cli.options import PathType
from nodewright.documents.output.terminal import YES, print_text
from nodewright.documents.output.text_layout import table
from nodewright.model.errors import Fault, HostError, InputError

ENTRY = "- `"
"""How a line of the list in `README.md` begins."""


def examples_folder() -> Path:
    """The directory of the examples: that of the package, or that of the repository for an installation in place."""
    package = Path(str(resources.files("nodewright")))
    return next(path for path in (package / "examples", package.parents[1] / "examples") if path.is_dir())


def described_examples() -> list[tuple[str, str]]:
    """The directories of the examples with a line each."""
    lines = (examples_folder() / "README.md").read_text("utf-8").splitlines()
    entries = (line.removeprefix(ENTRY).split("`: ", 1) for line in lines if line.startswith(ENTRY))
    return [(name, summary) for name, summary in entries]


@click.command("examples")
@click.argument("directory", metavar="[DIR]", type=PathType(), required=False)
def command(directory: Path | None) -> int:
    """List the example files that the guide's commands read, or copy them to DIR.

    `nodewright examples examples` makes the directory with which every command of the guide works as it is shown. DIR
    must not exist, or be empty: nothing is overwritten.
    """
    if directory is None:
        print_text(table(("DIRECTORY", "CONTENTS"), described_examples()))
        return YES
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        rule = "exists and is not an empty directory: name one that does not exist"
        raise InputError([Fault(path="DIR", value=str(directory), rule=rule)])
    existed, ignored = directory.exists(), shutil.ignore_patterns("__pycache__")
    try:
        shutil.copytree(examples_folder(), directory, dirs_exist_ok=True, ignore=ignored)
    except BaseException as error:  # an interrupt, too, leaves nothing
        shutil.rmtree(directory, ignore_errors=True)
        if existed:
            directory.mkdir(exist_ok=True)
        if isinstance(error, shutil.Error):  # names every file
            raise HostError("copy", str(directory), error.args[0][0][2].partition(": ")[0]) from None
        raise
    print_text(
        f"copied to {directory}: {len(described_examples())} directories, listed in {directory / 'README.md'}\n"
    )
    return YES
