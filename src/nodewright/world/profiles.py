"""NodeProfile files."""

from pathlib import Path
from typing import Any

import msgspec

from nodewright.model.profile import API_VERSION, NodeProfile
from nodewright.world.decode import decode
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.kubelet_config import Host, kubelet_config_from
from nodewright.world.places import Place
from nodewright.world.profile_faults import CGROUP_VERSIONS, profile_faults
from nodewright.world.schema import checked

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
    return profile_of(value, Place(source, content, document=documents[0].number, documents=1))


def profile_of(value: dict[str, Any], place: Place) -> NodeProfile:
    """The node that a document of that kind describes; else as load_profile."""
    check = checked(value, KIND)
    try:
        profile = decode(check.sound_part() if check.found else value, NodeProfile)
    except msgspec.ValidationError:
        # Without what is at fault it is no profile any more: the rest cannot be judged.
        raise InputError(place.all_of(check.faults)) from None
    if faults := [*check.faults, *profile_faults(profile)]:
        raise InputError([*place.all_of(faults), *_of_configuration(profile, place.source)])
    return profile


def _of_configuration(profile: NodeProfile, source: str) -> tuple[Fault, ...]:
    """What is wrong with the kubelet's configuration, besides: a command may put another in its place."""
    spec = profile.spec
    host = Host(cgroup_version=spec.cgroup_version) if spec.cgroup_version in CGROUP_VERSIONS else Host()
    try:
        kubelet_config_from(spec.kubelet_configuration, f"{source}: spec.kubeletConfiguration", host=host)
    except InputError as error:
        return error.faults
    return ()
