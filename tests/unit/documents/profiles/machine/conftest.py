import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108 - hundreds of small files a test, faster in memory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory for one test, removed after it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)
