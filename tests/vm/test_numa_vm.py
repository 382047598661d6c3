"""The agent in a virtual machine with cgroups of version 2 and two NUMA nodes; one machine for all of these tests."""

import os
import re
import shutil
import site
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = (
    "tests/vm/inside.py",
    "tests/live/test_cgroups.py",
    "tests/live/test_agent.py",
)
PROCESSES = ("tests/live/test_processes.py", "tests/live/test_powers.py")
"""The tests of plain processes, all of which also run on the host: `VM_TESTS=all`, in `make soak`, repeats all in the machine."""
LIMITED_PROCESSES = tuple(
    f"{PROCESSES[0]}::{name}"
    for name in (
        "test_process_runtime",
        "test_memory_beyond_the_limit_ends_a_container_as_oom_killed",
        "test_a_fork_bomb_ends",
    )
)
"""Those in which the version of cgroups matters: the others are about logs, users and signals, and take half of the time."""
COMMANDS = "tests/vm/command.py"
LIMITED_COMMANDS = f"{COMMANDS}::test_the_command_evicts_a_pod_that_grows_before_the_kernel_would"
"""What the other commands show, `inside.py` shows of the agent in one process, without starting Python on an emulated CPU."""
IS_WHOLE = os.environ.get("VM_TESTS") == "all"
CHOSEN = (*FILES, *((COMMANDS, *PROCESSES) if IS_WHOLE else (LIMITED_COMMANDS, *LIMITED_PROCESSES)))
LEFT_OUT = (
    ".git",
    ".venv",
    "docs",
    "build",
    "examples",
    "benchmarks",
    "conformance",
    "golden",
    ".mypy_cache",
)
PORTS = ("test_process_runtime", "test_cgroup_fs")
NO_MACHINE = 125
LIMIT_S = 900
COMPILED = "/compiled"


def names(chosen: str) -> list[str]:
    """The tests of a file, or the one that is chosen, without those of the ports."""
    file, _, name = chosen.partition("::")
    text = (ROOT / file).read_text()
    in_file = re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)
    return [each for each in in_file if each not in PORTS and name in ("", each)]


def packages() -> list[Path]:
    """Where the packages are that the tests need, if the guest's Python can use them."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("needs packages for the guest's Python 3.11, and this is another one")
    return [Path(each) for each in site.getsitepackages() if (Path(each) / "msgspec").is_dir()]


def compiled(site_packages: Path) -> list[str]:
    """Mounts of what this Python has compiled apart from the sources: the guest is too slow to compile it again."""
    if sys.pycache_prefix is None:
        return []
    places = {"/src": ROOT, "/site": site_packages}
    folders = {at: Path(f"{sys.pycache_prefix}{place}") for at, place in places.items()}
    return [f"{folder}:{COMPILED}{at}" for at, folder in folders.items() if folder.is_dir()]


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    """What came of each test, by its name; empty: it is right."""
    for program in ("qemu-system-x86_64", "mke2fs"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install qemu-system-x86 e2fsprogs lz4")
    (site_packages,) = packages()
    words = [str(HERE / "numa-vm"), "--cpus", "8", "--numa", "2", "--memory", "2G", "--timeout", str(LIMIT_S)]
    words += ["--mount", f"{ROOT}:/src", "--mount", f"{site_packages}:/site", "--workdir", "/src"]
    words += [word for mount in compiled(site_packages) for word in ("--mount", mount)]
    words += [word for name in LEFT_OUT for word in ("--exclude", name)]
    words += ["--", "sh", "-c", INSIDE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
    if done.returncode == NO_MACHINE:
        pytest.skip(f"needs a virtual machine: {done.stderr.strip()[-500:]}")
    _, _, report = done.stdout.partition("<?xml")
    assert report, f"exit code {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return {
        case.attrib["name"]: "".join(
            part.text or part.attrib["message"] for part in case if part.tag != "skipped"
        )
        for case in ET.fromstring(f"<?xml{report}").iter("testcase")  # noqa: S314 - our own report
    }


PYTEST = (
    "python3 -m pytest -q -c /dev/null --rootdir=/src --noconftest --import-mode=importlib -p no:cacheprovider "
    "-p no:warnings --junitxml=/tmp/report.xml"
)
INSIDE = (
    f"export PYTHONPYCACHEPREFIX={COMPILED} PYTHONPATH=/src/src:/src:/site PYTEST_DISABLE_PLUGIN_AUTOLOAD=1; "
    f"{PYTEST} {' '.join(CHOSEN)} >/tmp/said 2>&1; code=$?; "
    "cat /tmp/report.xml 2>/dev/null || cat /tmp/said; exit $code"
)


@pytest.mark.parametrize("name", [name for chosen in CHOSEN for name in names(chosen)])
def test_inside(name: str, results: dict[str, str]) -> None:
    assert name in results
    assert not results[name], results[name]


@pytest.mark.parametrize("port", PORTS)
def test_the_ports_inside(port: str, results: dict[str, str]) -> None:
    document = {name: said for name, said in results.items() if name.startswith(f"{port}[")}
    assert len(document) >= 5
    assert not any(document.values()), "\n".join(document.values())
