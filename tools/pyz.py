"""nodewright.pyz: one file for machines without pip, with everything that the command needs: `python -m tools pyz`.

msgspec is compiled, so the file has it for each release of Python on Linux, x86_64 and aarch64. Compiled modules cannot be loaded
from an archive: the first start unpacks the file into the user's cache, later ones run from there.
"""

import io
import resource
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import median

from tools.bundle import COMMAND_LOCK, PLATFORMS, files_below, install_locked, install_wheel
from tools.source import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_RUNS = 7
_ADMIT = "admit -f examples/admission/pods.yaml --node examples/nodes/worker.yaml"
_MAIN = """import os, shutil, sys, tempfile, zipfile
DIGEST = "{digest}"
def main():
    archive = os.path.abspath(sys.argv[0])
    tag = "%d.%d-%s" % (sys.version_info[0], sys.version_info[1], os.uname().machine if sys.platform == "linux" else sys.platform)
    if tag not in {tags!r}:
        sys.exit("error: nodewright.pyz runs on Linux with Python {pythons} on {machines}, this is " + tag + ": install the wheel")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    place = os.path.join(base, "nodewright", DIGEST, tag)
    temporary = None
    try:
        if not os.path.isdir(place):
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            unpack(archive, tag, place)
        if os.stat(place).st_uid != os.getuid():
            sys.exit("error: " + place + " belongs to another user")
    except OSError:
        temporary = tempfile.mkdtemp(prefix="nodewright-")
        place = os.path.join(temporary, "lib")
        unpack(archive, tag, place)
    sys.path[:1] = [place]
    try:
        from nodewright.cli import main
        main()
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
def unpack(archive, tag, place):
    with zipfile.ZipFile(archive) as files, tempfile.TemporaryDirectory(dir=os.path.dirname(place)) as folder:
        prefixes = ("lib/any/", "lib/" + tag + "/")
        for name in files.namelist():
            for prefix in prefixes:
                if name.startswith(prefix):
                    target = os.path.join(folder, "lib", name[len(prefix):])
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with open(target, "wb") as file:
                        file.write(files.read(name))
        try:
            os.rename(os.path.join(folder, "lib"), place)
        except OSError:
            if not os.path.isdir(place):  # another process was not faster
                raise
main()
"""


def pyz(wheel: Path, time_s: int) -> bytes:
    """The file: the same bytes for the same wheel, locks and time."""
    contents: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        common = Path(name) / "common"
        install_wheel(wheel, common)
        contents |= _contents(common, "lib/any", without=(".pyi",))
        for python in PYTHONS:
            for machine in PLATFORMS:
                folder = Path(name) / f"{python}-{machine}"
                install_locked(COMMAND_LOCK, folder, python=python, machine=machine)
                for path, content in _contents(folder, "", without=(".pyi", ".h", ".c")).items():
                    # What is the same everywhere is there once.
                    is_same = not path.endswith(".so")
                    contents[f"lib/any{path}" if is_same else f"lib/{folder.name}{path}"] = content
    digest = sha256(
        b"".join(path.encode() + sha256(content).digest() for path, content in sorted(contents.items()))
    )
    tags = [f"{python}-{machine}" for python in PYTHONS for machine in PLATFORMS]
    main = _MAIN.format(
        digest=digest.hexdigest()[:16],
        tags=tags,
        pythons=f"{PYTHONS[0]} to {PYTHONS[-1]}",
        machines=" or ".join(PLATFORMS),
    )
    return b"#!/usr/bin/env python3\n" + _zip({"__main__.py": main.encode(), **contents}, time_s)


def _contents(folder: Path, prefix: str, *, without: tuple[str, ...]) -> dict[str, bytes]:
    return {
        f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in files_below(folder)
        if not path.name.endswith(without) and path.relative_to(folder).parts[0] != "share"
    }


def _zip(contents: dict[str, bytes], time_s: int) -> bytes:
    buffer = io.BytesIO()
    at = datetime.fromtimestamp(time_s, UTC).timetuple()[:6]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(contents):
            information = zipfile.ZipInfo(path, at)
            information.external_attr = 0o644 << 16
            information.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(information, contents[path], compresslevel=9)
    return buffer.getvalue()


def main(arguments: list[str]) -> None:
    """Write build/nodewright.pyz from WHEEL and print what the first and later starts cost."""
    (wheel,) = arguments
    place = ROOT / "build" / "nodewright.pyz"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(pyz(Path(wheel), 315532800))
    place.chmod(0o755)
    print(f"{place.relative_to(ROOT)}: {place.stat().st_size / 1e6:.1f} MB")
    for line in ("--help", _ADMIT):
        with tempfile.TemporaryDirectory() as cache:
            first_ms, *later_ms = [_cpu_ms(place, line, cache) for _ in range(_RUNS + 1)]
        print(f"nodewright {line}: CPU time {first_ms:.0f} ms at first, then {median(later_ms):.0f} ms")


def _cpu_ms(place: Path, line: str, cache: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command, environment = [sys.executable, str(place), *line.split()], {"XDG_CACHE_HOME": cache}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)
    assert done.returncode in (0, 3), done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3
