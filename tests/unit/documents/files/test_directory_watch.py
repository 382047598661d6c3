"""Watches with inotify: what ends a wait."""

import asyncio
from pathlib import Path

import pytest

from nodewright.documents.files.directory_watch import DirectoryWatch

LONG_S = 600


async def changes_seen(directory: Path, depth: int, *changes: Path) -> None:
    """Makes one file after the other, each in a directory of its own, once the watch waits."""
    watch = DirectoryWatch(directory, depth)
    try:
        async with asyncio.timeout(30):
            # A new watch reports what came before it.
            await watch.wait(LONG_S)
            for change in changes:
                waiting = asyncio.create_task(watch.wait(LONG_S))
                await asyncio.sleep(0)
                change.parent.mkdir(exist_ok=True)
                change.touch()
                await waiting
    finally:
        watch.close()


def test_a_change_in_the_directory_or_in_a_new_subdirectory_ends_the_wait(tmp_path: Path) -> None:
    first, inner = tmp_path / "first", tmp_path / "sub" / "inner"
    asyncio.run(changes_seen(tmp_path, 2, first, tmp_path / "sub" / "a", inner / "b", inner / "c"))


def test_a_removed_subdirectory_does_not_end_the_watch(tmp_path: Path) -> None:
    async def removed() -> None:
        (tmp_path / "sub").mkdir()
        watch = DirectoryWatch(tmp_path, 1)
        async with asyncio.timeout(30):
            await watch.wait(LONG_S)
            (tmp_path / "sub").rmdir()
            await watch.wait(LONG_S)
            (tmp_path / "later").touch()
            await watch.wait(LONG_S)
        watch.close()

    asyncio.run(removed())


@pytest.mark.slow
def test_without_depth_subdirectories_are_not_watched(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(changes_seen(tmp_path, 0, tmp_path / "sub" / "a"), 0.5))
