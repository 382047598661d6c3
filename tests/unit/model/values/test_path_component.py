"""Names in paths: a name of a manifest never leads out of its directory."""

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodewright.model.values.path_component import PathComponent, PathComponentError, path_component_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty"),
        (".", "it stands for a directory"),
        ("..", "it stands for a directory"),
        ("/srv/victim", "it contains '/'"),
        ("../../new", "it contains '/'"),
        ("a\0b", "it contains a NUL character"),
        ("ü" * 128, "it is longer than 255 bytes"),
        ("ü" * 127, ""),
        ("...", ""),
        ("web-0", ""),
    ],
)
def test_only_names_of_single_files_are_taken(text: str, fault: str) -> None:
    assert path_component_fault(text) == fault


@given(st.text(st.sampled_from("a./\0é-"), max_size=8))
@example("..")
@example("/")
def test_a_component_stays_directly_below_its_directory(text: str) -> None:
    try:
        name = PathComponent(text)
    except PathComponentError:
        return
    path = PurePosixPath("/root") / name
    assert path.parent == PurePosixPath("/root")
    assert os.path.normpath(path) == str(path)
