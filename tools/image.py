"""An OCI image without a daemon and without a registry: `python -m tools image WHEEL` writes it and its SBOM into build/image.

The base is made of packages of Debian 12 that Python needs; there is no shell and no package manager in it. The packages of Python are
those of the lock. The same packages give the same bytes; the SBOM lists them with their digests. Needs apt-get and dpkg-deb.
"""

import compileall
import gzip
import io
import json
import py_compile
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from tools.bundle import SERVER_LOCK, install_locked, install_wheel, version_of
from tools.source import ROOT

DEBIAN_PACKAGES = (
    *(
        "base-files",
        "ca-certificates",
        "libbz2-1.0",
        "libc6",
        "libcrypt1",
        "libexpat1",
        "libffi8",
        "libgcc-s1",
    ),
    *("liblzma5", "libpython3.11-minimal", "libpython3.11-stdlib", "libssl3", "libstdc++6", "libuuid1"),
    *("media-types", "python3.11-minimal", "zlib1g"),
)
USER = "65534:65534"
NAME = "registry.invalid/nodewright"
"""Without the tag, which is the version. No registry has it: push it under a name of your own."""
SITE = "usr/lib/python3/dist-packages"
_MERGED = ("bin", "lib", "lib64", "sbin")
_LEFT_OUT = (
    "usr/share/man/",
    "usr/share/locale/",
    "usr/share/lintian/",
    "usr/share/info/",
    "usr/lib/x86_64-linux-gnu/gconv/",
)
_PROGRAM = "#!/usr/bin/python3.11 -I\nfrom nodewright.cli import main\nmain()\n"
_LEVELS = (0, 2)
"""Modules are compiled for both optimizations: exporters leave out docstrings to save memory."""

Tree = dict[str, tuple[tarfile.TarInfo, bytes]]


def image(wheel: Path, debian: Path, time_s: int) -> tuple[bytes, bytes]:
    """The archive of the image in the layout of OCI, and its SBOM in CycloneDX's JSON.

    ``debian`` is a directory with the Debian packages.
    """
    tree: Tree = {}
    packages = sorted(debian.glob("*.deb"))
    for package in packages:
        _unpack(package, tree)
    _add_system_files(tree)
    with tempfile.TemporaryDirectory() as name:
        site = Path(name) / SITE
        install_wheel(wheel, site)
        install_locked(SERVER_LOCK, site)
        components = [*map(_debian_component, packages), *_python_components(site)]
        stdlib = Path(name) / "usr/lib/python3.11"
        for path, (member, content) in tree.items():
            if path.startswith("usr/lib/python3.11/") and member.isfile() and path.endswith(".py"):
                target = Path(name) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        for folder in (site, stdlib):
            _compile(folder, Path(name))
        for file in sorted(Path(name).rglob("*")):
            if file.is_file():
                place = file.relative_to(name).as_posix()
                _add(tree, place, file.read_bytes(), 0o644)
    layer = _layer(tree, time_s)
    version = version_of(wheel)
    return _archive(layer, version, time_s), _sbom(components, version)


def _unpack(package: Path, tree: Tree) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    content = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        for member in files:
            path = _merged(member.name)
            if member.isdir() or not path or (path.startswith(_LEFT_OUT)):
                continue
            if path.startswith("usr/share/doc/") and not path.endswith("/copyright"):
                continue
            reader = files.extractfile(member) if member.isreg() else None
            member.name = path
            if member.islnk():
                member.linkname = _merged(member.linkname)
            tree[path] = (member, reader.read() if reader else b"")


def _merged(name: str) -> str:
    """The path without its beginning, below usr/ where Debian 12 has links at the top."""
    path = PurePosixPath(name.removeprefix("./"))
    return (
        f"usr/{path}" if path.parts and path.parts[0] in _MERGED else ("" if str(path) == "." else str(path))
    )


def _add(tree: Tree, path: str, content: bytes, mode: int, link: str = "") -> None:
    member = tarfile.TarInfo(path)
    member.mode, member.linkname, member.size = mode, link, len(content)
    member.type = tarfile.SYMTYPE if link else tarfile.REGTYPE
    tree[path] = (member, content)


def _add_system_files(tree: Tree) -> None:
    for name in _MERGED:
        _add(tree, name, b"", 0o777, link=f"usr/{name}")
    _add(tree, "usr/bin/python3", b"", 0o777, link="python3.11")
    _add(tree, "usr/bin/nodewright", _PROGRAM.encode(), 0o755)
    users = "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    _add(tree, "etc/passwd", users.encode(), 0o644)
    _add(tree, "etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)
    certificates = [
        content
        for path, (_, content) in sorted(tree.items())
        if path.startswith("usr/share/ca-certificates/")
    ]
    _add(tree, "etc/ssl/certs/ca-certificates.crt", b"".join(certificates), 0o644)


def _compile(folder: Path, root: Path) -> None:
    if sys.version_info[:2] != (3, 11):
        sys.exit(
            "image: its Python is 3.11, and only Python 3.11 compiles modules for it: `make setup PYTHON=python3.11`"
        )
    for level in _LEVELS:
        # Unchecked: the modules of an image do not change, and their times are not the same everywhere.
        compileall.compile_dir(
            folder, quiet=2, optimize=level, stripdir=str(root), prependdir="/", invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )  # fmt: skip


def _layer(tree: Tree, time_s: int) -> bytes:
    folders = {str(parent) for path in tree for parent in PurePosixPath(path).parents} - {"."}
    folders |= {"tmp", "proc", "sys", "dev", "run", "var/tmp", "var"}
    for folder in folders:
        member = tarfile.TarInfo(folder)
        member.type, member.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
        tree.setdefault(folder, (member, b""))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as files:
        for path in sorted(tree, key=lambda each: (tree[each][0].islnk(), each)):
            member, content = tree[path]
            member.mtime, member.uid, member.gid, member.uname, member.gname = time_s, 0, 0, "", ""
            files.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return buffer.getvalue()


def _archive(layer: bytes, version: str, time_s: int) -> bytes:
    """The layout of OCI in an archive, with the name that containerd gives the image."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media_type: str) -> dict[str, Any]:
        digest = sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {
            "mediaType": f"application/vnd.oci.image.{media_type}",
            "digest": f"sha256:{digest}",
            "size": len(content),
        }

    created = datetime.fromtimestamp(time_s, UTC).isoformat().replace("+00:00", "Z")
    config = {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": USER,
            "Env": ["PATH=/usr/bin", "PYTHONUNBUFFERED=1", "LANG=C.UTF-8"],
            "Entrypoint": ["/usr/bin/nodewright"],
            "Labels": {"org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "python -m tools image"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(_json(config), "config.v1+json"),
        "layers": [blob(gzip.compress(layer, 9, mtime=0), "layer.v1.tar+gzip")],
    }
    descriptor = blob(_json(manifest), "manifest.v1+json")
    descriptor["annotations"] = {
        "io.containerd.image.name": f"{NAME}:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor],
    }
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(content), time_s
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1).encode()


def _debian_component(package: Path) -> dict[str, Any]:
    fields = subprocess.run(["dpkg-deb", "--show", "--showformat", "${Package} ${Version} ${Architecture}", package], check=True, capture_output=True, text=True)  # fmt: skip
    name, version, architecture = fields.stdout.split()
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}",
        "hashes": [{"alg": "SHA-256", "content": sha256(package.read_bytes()).hexdigest()}],
    }


def _python_components(site: Path) -> Iterator[dict[str, Any]]:
    for metadata in sorted(site.glob("*.dist-info/METADATA")):
        fields = dict(
            line.split(": ", 1)
            for line in metadata.read_text("utf-8").partition("\n\n")[0].splitlines()
            if ": " in line
        )
        name, version = fields["Name"].lower(), fields["Version"]
        component = {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
        }
        if licence := fields.get("License-Expression"):
            component["licenses"] = [{"expression": licence}]  # type: ignore[assignment] # values differ
        yield component


def _sbom(components: list[dict[str, Any]], version: str) -> bytes:
    root = {"type": "container", "name": "nodewright", "version": version}
    return _json({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": root}, "components": components})  # fmt: skip


def download_debian(folder: Path) -> None:
    """Downloads the Debian packages of the base with the machine's apt.

    Errors: SystemExit where that is not Debian 12, or has no network.
    """
    release = Path("/etc/os-release")
    if not release.exists() or "VERSION_CODENAME=bookworm" not in release.read_text("utf-8"):
        sys.exit("image: the base is made of packages of Debian 12, and this is another system")
    folder.mkdir(parents=True, exist_ok=True)
    ran = subprocess.run(
        ["apt-get", "download", "-q", *DEBIAN_PACKAGES],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        sys.exit(f"image: the packages of Debian cannot be downloaded: {ran.stderr.strip()}")


def main(arguments: list[str]) -> None:
    """Write build/image from WHEEL."""
    (wheel,) = arguments
    version, out = version_of(Path(wheel)), ROOT / "build" / "image"
    download_debian(out / "debian")
    archive, sbom = image(Path(wheel), out / "debian", int(datetime.now(UTC).timestamp()))
    for name, content in {
        f"nodewright-{version}-image.tar": archive,
        f"nodewright-{version}-image.cdx.json": sbom,
    }.items():
        (out / name).write_bytes(content)
        print(f"{(out / name).relative_to(ROOT)}: {len(content) / 1e6:.1f} MB")
