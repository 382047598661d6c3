"""Reads a KubeletConfiguration file as written, without defaults."""

from pathlib import Path
from typing import Any, NamedTuple

from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.documents.profiles.kubelet_config_files import decode_kubelet_config
from nodewright.model.errors import Fault, InputError

_TYPE_META = ("apiVersion", "kind")


class WrittenConfig(NamedTuple):
    """The document without apiVersion and kind, and the paths of fields that the kubelet does not know."""

    document: dict[str, Any]
    unknown_fields: tuple[str, ...] = ()


def read_written_config(path: Path) -> WrittenConfig:
    """The first document of the file; the kubelet ignores the others.

    Whether the kubelet would start with it is checked when a node is created from the profile.

    Errors: InputError if it is not a KubeletConfiguration, or with every field of a wrong type.
    """
    file = read_file(str(path))
    documents = parse_documents(file.content, file.source)
    value = documents[0].value if documents else None
    decoded = decode_kubelet_config(value, file.source)
    if decoded.faults:
        raise InputError(
            [
                Fault(rule=fault.message, path=fault.path, value=fault.value, source=file.source)
                for fault in decoded.faults
            ]
        )
    document = {key: item for key, item in value.items() if key not in _TYPE_META} if value else {}
    return WrittenConfig(document, tuple(decoded.unknown_fields))
