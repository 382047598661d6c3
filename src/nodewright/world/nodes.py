"""The node that a command is asked about: this machine, a profile, or a shape of the catalogue."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec.structs import replace

from nodewright.model.objects import ObjectMeta, Pod
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.model.shape import GIB
from nodewright.world.catalogue import Entry, catalogue
from nodewright.world.errors import Fault, InputError
from nodewright.world.machine.capture import capture_here, labels
from nodewright.world.profiles import load_profile

CATALOGUE = "catalogue:"

USUAL_ROOT_FS_BYTES = 500 * GIB
USUAL_PID_MAX = 4_194_304  # what systemd sets on 64-bit machines


def find_profile(reference: str | None) -> NodeProfile:
    """The node meant: None is this machine; else a profile's path, or a name of the catalogue.

    `catalogue:NAME` is never taken for a path. This machine and shapes of the catalogue have the kubelet's
    default configuration.

    Errors: InputError where there is neither such a file nor such a name, or the file is no sound profile.
    """
    if reference is None:
        return capture_here().profile
    name = reference.removeprefix(CATALOGUE)
    if name == reference and Path(reference).exists():
        return load_profile(reference)
    return shape_profile(name)


def shape_profile(name: str) -> NodeProfile:
    """The shape of that name as a node with usual disks.

    Errors: InputError where the catalogue has no such name.
    """
    entries = catalogue()
    if name not in entries:
        close = get_close_matches(name, entries, n=3)
        hint = f" (there are {', '.join(close)})" if close else ""
        rule = f"is neither a file nor a name of `nodewright node catalogue`{hint}"
        raise InputError([Fault(source="--node", value=name, rule=rule)])
    return _profile(entries[name])


def _profile(entry: Entry) -> NodeProfile:
    spec = NodeProfileSpec(
        machine_info=entry.machine,
        root_fs_capacity=USUAL_ROOT_FS_BYTES,
        labels=labels(entry.name, entry.architecture),
        pid_max=USUAL_PID_MAX,
    )
    return NodeProfile(metadata=ObjectMeta(name=entry.name), spec=spec)


def known_pod(pods: Sequence[Pod], written: Pod, *, node: str) -> Pod:
    """The pod as written, with the uid under which the node has it: found by uid, else the last of its name.

    Errors: InputError if the node has no such pod.
    """
    named = [one for one in pods if one.full_name == written.full_name]
    found = next((one for one in pods if one.uid == written.uid), named[-1] if named else None)
    if found is None:
        names = ", ".join(one.full_name for one in pods) or "no pods"
        rule = f"is not on node {node}, so it cannot be resized there; it has {names}"
        raise InputError([Fault(path="metadata.name", value=written.full_name, rule=rule)])
    return replace(written, metadata=replace(written.metadata, uid=found.uid))
