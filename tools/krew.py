"""The krew plugin of a release: `python -m tools.krew URL` writes its archive and its manifest to `build/krew`.

URL is where the archive is published. The manifest goes to the krew index; krew installs what has its checksum.
"""

import gzip
import hashlib
import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

from nodewright.version import __version__
from tools.source import ROOT

LAUNCHER = ROOT / "packaging" / "krew" / "kubectl-nodewright"
OUT = ROOT / "build" / "krew"


def archive(version: str) -> bytes:
    """The archive of the plugin: launcher and licence, the same bytes for the same version."""
    files = {
        "kubectl-nodewright": (LAUNCHER.read_text("utf-8").replace("VERSION", version), 0o755),
        "LICENSE": ((ROOT / "LICENSE").read_text("utf-8"), 0o644),
    }
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as contents:
        for name, (text, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), mode
            contents.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(tar.getvalue(), mtime=0)


def manifest(version: str, url: str, content: bytes) -> dict[str, Any]:
    """The manifest for the krew index."""
    platforms = [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "nodewright"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Predict and explain the kubelet's decisions",
            "description": (
                "Gives the kubelet's own answer about a pod's resources: verdict, CPUs, NUMA nodes, devices, eviction\n"
                "victims, quota; the reason, and the smallest change that flips it.\n"
            ),
            "caveats": "Needs Python 3.11 with `pip install nodewright`, or uv, or pipx.\n",
            "platforms": [
                {
                    "selector": {"matchExpressions": platforms},
                    "uri": url,
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bin": "kubectl-nodewright",
                    "files": [{"from": "kubectl-nodewright", "to": "."}, {"from": "LICENSE", "to": "."}],
                }
            ],
        },
    }


def main() -> None:
    """Writes archive and manifest."""
    (url,) = sys.argv[1:]
    version = __version__
    content = archive(version)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / Path(url).name).write_bytes(content)
    text = yaml.safe_dump(manifest(version, url, content), sort_keys=False)
    (OUT / "nodewright.yaml").write_text(text, "utf-8")
    print(f"{OUT.relative_to(ROOT)}: {Path(url).name}, nodewright.yaml")


if __name__ == "__main__":
    main()
