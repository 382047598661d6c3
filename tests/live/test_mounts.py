"""Memory file systems and pinned paths, in a mount namespace of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

SCRIPT = """
import os, sys
from pathlib import Path
from nodewright.agent.host.volumes import KernelMounter, mount_points_below
from nodewright.agent.host.volumes import Volumes

root = Path(sys.argv[1]) / "other\x0b line"
root.mkdir()
mounts = KernelMounter()
volumes = Volumes(root, mounts)
fast = volumes.set_up_empty_dir("u", {"name": "fast one", "emptyDir": {"medium": "Memory"}}, 7, 1 << 20)
volumes.set_up_empty_dir("u", {"name": "fast one", "emptyDir": {"medium": "Memory"}}, 7, 1 << 20)
told = os.statvfs(fast)
assert told.f_blocks * told.f_frsize == 1 << 20, told
assert (fast.stat().st_mode & 0o7777, fast.stat().st_gid) == (0o3777, 7)
try:
    (fast / "much").write_bytes(b"x" * (2 << 20))
except OSError as error:
    print(error.strerror)
work = volumes.set_up_empty_dir("u", {"name": "work", "emptyDir": {}}, None, 0)
pinned = volumes.prepare_subpath("u", work, "data", ("work", "app", 0))
(pinned / "a").write_text("seen")
assert (work / "data" / "a").read_text() == "seen"
(work / "data").rename(work / "old")
(work / "data").symlink_to("/etc")
assert [one.name for one in pinned.iterdir()] == ["a"]
assert len(mount_points_below(root)) == 2, mount_points_below(root)
volumes.remove("u")
assert mount_points_below(root) == []
assert list(root.iterdir()) == []
"""


def test_volumes_in_memory_and_paths_below_volumes(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: nothing can be mounted")
    own = ["unshare", "--mount", "--propagation", "private"]
    tried = subprocess.run([*own, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mount namespace of one's own: {tried.stderr.decode().strip()}")
    done = subprocess.run(
        [*own, sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "No space left on device\n", "")
