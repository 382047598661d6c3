"""NodeProfile files."""

from pathlib import Path
from typing import Any

from nodewright.model.profile import API_VERSION, NodeProfile
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.places import Place
from nodewright.world.profile_faults import profile_faults
from nodewright.world.schema import faults_in

KIND = "NodeProfile"


def load_profile(path: str | Path) -> NodeProfile:
    """The node that the file describes.

    Errors: InputError with all faults of the file.
    """
    file = read_file(str(path))
    return profile_from(file.content, file.source)


def profile_from(content: bytes, source: str) -> NodeProfile:
    """The node that the bytes describe; else as load_profile."""
    documents = parse_documents(content, source)
    if len(documents) != 1:
        raise InputError([Fault(rule=f"one {KIND} is wanted, not {len(documents)} documents", source=source)])
    value: Any = documents[0].value
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        rule = f"a document with apiVersion: {API_VERSION} and kind: {KIND} is wanted"
        raise InputError([Fault(rule=rule, source=source)])
    place = Place(source, content, document=documents[0].number, documents=1)
    if faults := faults_in(value, KIND):
        raise InputError(place.all_of(faults))
    profile = decode(value, NodeProfile)
    if faults := list(profile_faults(profile)):
        raise InputError(place.all_of(faults))
    return profile
