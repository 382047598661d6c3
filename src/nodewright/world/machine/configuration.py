"""A KubeletConfiguration file, as it is."""

from pathlib import Path
from typing import Any

from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError

API_VERSION, KIND = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"


def read_configuration(path: Path) -> dict[str, Any]:
    """The fields of the file without its apiVersion and kind.

    Errors: InputError where it is no single KubeletConfiguration of v1beta1.
    """
    source = str(path)
    try:
        documents = parse_documents(path.read_bytes(), source)
    except OSError as error:
        raise InputError([Fault(source=source, rule=f"cannot be read: {error.strerror}")]) from None
    value = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        rule = f"one document with apiVersion: {API_VERSION} and kind: {KIND} is wanted"
        raise InputError([Fault(source=source, rule=rule)])
    return {key: item for key, item in value.items() if key not in ("apiVersion", "kind")}
