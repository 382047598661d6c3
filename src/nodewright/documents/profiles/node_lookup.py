"""Finds the node of a command: this machine, a profile file, or a machine of the catalogue."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nodewright.documents.files.regular_files import is_there
from nodewright.documents.formats.documents import provided_content, read_file
from nodewright.documents.profiles.node_profiles import profile_from_bytes
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec, kubelet_labels
from nodewright.model.kubernetes.objects import ObjectMeta, Pod

if TYPE_CHECKING:
    from nodewright.documents.profiles.catalogue import CatalogueMachine

CATALOGUE = "catalogue:"

SOURCES_ANNOTATION = "nodewright.dev/sources"
ASSUMED_ANNOTATION = "nodewright.dev/assumed"
"""What a profile from the catalogue says of its figures: where they are from, and which have no source."""

DEFAULT_ROOT_FS_BYTES = 500 << 30
DEFAULT_PID_MAX = 4_194_304  # set by systemd on 64-bit machines


def find_profile(reference: str | None, *, release: str | None = None) -> NodeProfile:
    """The node of a reference: None is this machine; otherwise the path of a profile, or a catalogue name.

    ``release`` replaces the Kubernetes release that the profile names.

    `catalogue:NAME` is never a path. This machine and machines of the catalogue have the kubelet's default
    configuration.

    Errors: InputError if there is neither such a file nor such a name, or the file is not a valid profile.
    """
    profile = _found_profile(reference)
    return profile if release is None else with_release(profile, release)


def with_release(profile: NodeProfile, release: str) -> NodeProfile:
    """The node as one of another Kubernetes release."""
    return replace(profile, spec=replace(profile.spec, kubernetes_version=release))


def _found_profile(reference: str | None) -> NodeProfile:
    if reference is None:
        if sys.platform != "linux":
            raise InputError([Fault(rule="this machine is not Linux: name a node with --node")])
        from nodewright.documents.profiles.machine.captured_machine import capture_this_machine  # noqa: PLC0415 - start-up time

        return capture_this_machine().profile
    name = reference.removeprefix(CATALOGUE)
    if name == reference and (provided_content(reference) is not None or is_there(reference)):
        file = read_file(reference)
        if b"NodeProfile" not in file.content:
            from nodewright.documents.profiles.node_profiles import is_node_object, node_object_profile  # noqa: PLC0415 - rare

            if is_node_object(file.content):
                return node_object_profile(reference)
        return profile_from_bytes(file.content, file.source)
    return catalogue_profile(name)


def catalogue_profile(name: str) -> NodeProfile:
    """The catalogue machine of that name, as a node with typical disks and its devices.

    Errors: InputError if the catalogue has no such name.
    """
    from nodewright.documents.profiles.catalogue import catalogue, catalogue_machine  # noqa: PLC0415 - start-up time

    machine = catalogue_machine(name)
    if machine is None:
        from difflib import get_close_matches  # noqa: PLC0415 - start-up time

        matches = get_close_matches(name, catalogue(), n=3)
        hint = f" (similar names: {', '.join(matches)})" if matches else ""
        rule = f"neither a file nor a name of `nodewright node catalogue`{hint}"
        raise InputError([Fault(source="--node", value=name, rule=rule)])
    return _profile(machine)


def _profile(machine: "CatalogueMachine") -> NodeProfile:
    name = machine.name.lower().replace("_", "-")  # names of nodes have no others
    spec = NodeProfileSpec(
        machine_info=machine.machine,
        root_fs_capacity=DEFAULT_ROOT_FS_BYTES,
        labels=kubelet_labels(name, machine.architecture) | machine.labels,
        devices=machine.devices,
        pid_max=DEFAULT_PID_MAX,
    )
    annotations = {
        key: text
        for key, text in (
            (SOURCES_ANNOTATION, "; ".join(machine.sources)),
            (ASSUMED_ANNOTATION, machine.assumed),
        )
        if text
    }
    return NodeProfile(metadata=ObjectMeta(name=name, annotations=annotations), spec=spec)


def pod_on_node(pods: Sequence[Pod], manifest_pod: Pod, *, node: str) -> Pod:
    """The pod of a manifest with the uid of the node's pod: that with its uid, otherwise the last with its name.

    Errors: InputError if the node has no such pod.
    """
    same_name = [pod for pod in pods if pod.full_name == manifest_pod.full_name]
    match = next((pod for pod in pods if pod.uid == manifest_pod.uid), same_name[-1] if same_name else None)
    if match is None:
        names = ", ".join(pod.full_name for pod in pods) or "no pods"
        rule = f"not on node {node}, so it cannot be resized there; the node has {names}"
        raise InputError([Fault(path="metadata.name", value=manifest_pod.full_name, rule=rule)])
    return replace(manifest_pod, metadata=replace(manifest_pod.metadata, uid=match.uid))
