"""A shim is started without its package: what it imports then must be found beside it."""

import subprocess
import sys

from nodewright.agent.runtimes.processes.children import _MODULE_DIRECTORIES


def test_a_shim_finds_its_modules_without_its_package() -> None:
    statement = (
        "import sys; sys.path.extend(sys.argv[1].split(':')); import shim, capabilities; "
        "print(shim.ContainerLogWriter.__module__, shim.kill_all.__module__, capabilities.__name__, shim.oom_kills.__module__)"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", statement, _MODULE_DIRECTORIES],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["logfile", "process_kill", "capabilities", "shim_files"]
