"""Builds kustomizations with the tool that is installed: kubectl or kustomize."""

import shutil
import subprocess

from nodewright.documents.formats.documents import InputFile
from nodewright.model.errors import HostError

_TOOLS = (("kubectl", "kustomize"), ("kustomize", "build"))
_TIMEOUT_S = 120


def built_kustomization(directory: str) -> InputFile:
    """What `kubectl kustomize` or `kustomize build` makes of the directory.

    Errors: HostError if neither is installed, or it fails.
    """
    for tool, command in _TOOLS:
        path = shutil.which(tool)
        if path is not None:
            return InputFile(f"{directory} ({tool} {command})", _output([path, command, directory]))
    rule = "neither kubectl nor kustomize is installed; build it elsewhere and pass the result to -f -"
    raise HostError("build", directory, rule)


def _output(line: list[str]) -> bytes:
    try:
        result = subprocess.run(  # noqa: S603 - a tool of the user, without a shell
            line, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise HostError("build", line[-1], f"{line[0]} has not ended after {_TIMEOUT_S} s") from None
    if result.returncode != 0:
        message = result.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HostError(
            "build", line[-1], f"{line[0]}: {message[-1] if message else 'failed without a message'}"
        )
    return result.stdout
