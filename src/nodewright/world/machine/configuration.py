"""A KubeletConfiguration file, as it is written."""

from pathlib import Path
from typing import Any, NamedTuple

from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.kubelet_config import decode_document

_TYPE_META = ("apiVersion", "kind")


class Written(NamedTuple):
    """What stands in the file, without apiVersion and kind, and the paths of fields that the kubelet does not know."""

    document: dict[str, Any]
    unknown: tuple[str, ...] = ()


def read_configuration(path: Path) -> Written:
    """The first document of the file; the kubelet does not look at others.

    Whether the kubelet would start with it is asked of the node, not here.

    Errors: InputError where it is no KubeletConfiguration, or with every field of a wrong type.
    """
    file = read_file(str(path))
    documents = parse_documents(file.content, file.source)
    value = documents[0].value if documents else None
    decoded = decode_document(value, file.source)
    if decoded.faults:
        raise InputError(
            [
                Fault(rule=fault.text, path=fault.path, value=fault.value, source=file.source)
                for fault in decoded.faults
            ]
        )
    document = {key: item for key, item in value.items() if key not in _TYPE_META} if value else {}
    return Written(document, tuple(decoded.unknown))
