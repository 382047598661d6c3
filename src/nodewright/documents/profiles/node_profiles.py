"""The node of a command: this machine, a file with a profile or a Node object, or a machine of the catalogue.

A reference becomes a file, the file a document, and the document a NodeProfile that is checked.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.files.regular_files import is_there
from nodewright.documents.formats.decode import checked, decode, taint_faults
from nodewright.documents.formats.documents import InputFile, parse_documents, provided_content, read_file
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.allocations import allocation_faults
from nodewright.documents.profiles.kubelet_config_files import ConfigHost, kubelet_config_from
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.core.devices.device_state import PREFERENCES
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import Fault, InputError, unsupported_value
from nodewright.model.hardware import MachineInfo, contradictions
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.model.kubernetes.node_profile import (
    API_VERSION,
    Device,
    NodePart,
    NodeProfile,
    NodeProfileSpec,
    ReadSource,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.patterns import lazy_pattern
from nodewright.model.releases.release_table import release_table
from nodewright.model.values.golang import is_number_of_digits
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import INT64_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from nodewright.documents.profiles.capture.node_pods import NodePods

CATALOGUE = "catalogue:"
SHAPE = "shape:"
"""Begins a reference to a machine that is described by its shape, and after another colon by its bytes of memory."""
KIND = "NodeProfile"
_DEFECTS = ("follow", "avoid")
CGROUP_VERSIONS = (1, 2)
_SHAPE_WORD = lazy_pattern(r"\d+x\d+x\d+x\d+")
_NODE_OBJECT = lazy_pattern(rb"""["']?kind["']?\s*:\s*["']?Node["']?\s*[,}\r\n]""")


def find_profile(
    reference: str | None, *, release: str | None = None, pods: "Path | None" = None
) -> NodeProfile:
    """The node of a reference: None is this machine; otherwise the path of a profile, or a catalogue name.

    ``release`` replaces the Kubernetes release that the profile names. ``pods`` is a file with the node's pods, in place of
    those of the profile.

    `catalogue:NAME` and `shape:SHAPE` are never a path, and `2x1x32x2` is a shape unless it is a file. This machine and machines of the catalogue have the kubelet's default
    configuration.

    Errors: InputError if there is neither such a file nor such a name, or the file is not a valid profile.
    """
    profile = _found_profile(reference, pods)
    return profile if release is None else with_release(profile, release)


def with_release(profile: NodeProfile, release: str) -> NodeProfile:
    """The node as one of another Kubernetes release."""
    return replace(profile, spec=replace(profile.spec, kubernetes_version=release))


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


def _found_profile(reference: str | None, pods: "Path | None") -> NodeProfile:
    file = _named_file(reference)
    if file is not None and b"NodeProfile" not in file.content and is_node_object(file.content):
        return node_object_profile(file.source, pods)
    profile = (
        _profile_without_pods(reference) if file is None else profile_from_bytes(file.content, file.source)
    )
    if pods is None:
        return profile
    from nodewright.documents.profiles.capture.node_pods import read_pods  # noqa: PLC0415 - start-up time

    read = read_pods(pods, profile.metadata.name)
    profile = replace(profile, spec=replace(profile.spec, pods=read.pods, allocations=None))
    return _named_if_none(profile, read)


def _named_if_none(profile: NodeProfile, read: "NodePods") -> NodeProfile:
    """The profile; if none of the pods of a file is on the node, with the reason as a source that was not read."""
    if read.pods or not read.warnings:
        return profile
    left_out = "; ".join(warning.sentence() for warning in read.warnings)
    source = ReadSource(name="pods", error=left_out, assumed="no pods")
    return replace(profile, spec=replace(profile.spec, sources=(*profile.spec.sources, source)))


def _named_file(reference: str | None) -> InputFile | None:
    """The file of a reference; None: it is this machine, or a name of the catalogue."""
    if reference is None or reference.startswith(CATALOGUE):
        return None
    is_file = provided_content(reference) is not None or is_there(reference)
    return read_file(reference) if is_file else None


def _profile_without_pods(reference: str | None) -> NodeProfile:
    if reference is None:
        if sys.platform != "linux":
            raise InputError([Fault(rule="this machine is not Linux: name a node with --node")])
        from nodewright.documents.profiles.machine.captured_machine import capture_this_machine  # noqa: PLC0415 - start-up time

        return capture_this_machine().profile
    if reference.startswith(SHAPE) or _SHAPE_WORD.fullmatch(reference):
        from nodewright.documents.profiles.machine_shapes import shape_profile  # noqa: PLC0415 - start-up time

        text = reference.removeprefix(SHAPE)
        shape, _, memory = text.rpartition(":")
        has_memory = bool(shape) and is_number_of_digits(memory) and len(memory) < 19
        return shape_profile(shape, int(memory)) if has_memory else shape_profile(text)
    from nodewright.documents.profiles.catalogue import catalogue_profile  # noqa: PLC0415 - start-up time

    return catalogue_profile(reference.removeprefix(CATALOGUE))


def is_node_object(content: bytes) -> bool:
    r"""Whether a file may contain a Node object of a cluster.

    >>> is_node_object(b"kind: Node\n"), is_node_object(b"kind: NodeProfile\n")
    (True, False)
    """
    return _NODE_OBJECT.search(content) is not None


def node_object_profile(path: str, pods: "Path | None" = None) -> NodeProfile:
    """The node that `kubectl get node NAME -o yaml` prints, with its pods; what they do not tell is not judged.

    Errors: InputError if the file has no such node.
    """
    from pathlib import Path  # noqa: PLC0415 - start-up time

    from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node  # noqa: PLC0415 - as above
    from nodewright.documents.profiles.capture.from_cluster import read_node  # noqa: PLC0415 - as above
    from nodewright.documents.profiles.capture.node_pods import read_pods  # noqa: PLC0415 - as above

    node = read_node(Path(path))
    read = None if pods is None else read_pods(pods, node.name)
    profile = captured_node(NodeSources(node=node, pods=read)).profile
    if read is not None:
        return _named_if_none(profile, read)
    source = ReadSource(name="pods", error=f"{path} names none", assumed="no pods (--pods FILE)")
    return replace(profile, spec=replace(profile.spec, sources=(source,)))


def load_profile(path: "str | Path") -> NodeProfile:
    """The node that the file describes.

    Errors: InputError with all faults of the file.
    """
    file = read_file(str(path))
    return profile_from_bytes(file.content, file.source)


def profile_from_bytes(content: bytes, source: str) -> NodeProfile:
    """The node that the bytes describe; otherwise like `load_profile`."""
    documents = parse_documents(content, source)
    if len(documents) != 1:
        raise InputError([Fault(rule=f"expected one {KIND}, not {len(documents)} documents", source=source)])
    value: Any = documents[0].value
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        rule = f"expected a document with apiVersion: {API_VERSION} and kind: {KIND}"
        raise InputError([Fault(rule=rule, source=source)])
    return profile_from_document(
        value, ObjectLocation(source, content, document=documents[0].number, documents=1)
    )


def profile_from_document(value: dict[str, Any], location: ObjectLocation) -> NodeProfile:
    """The node that a document of that kind describes; otherwise like `load_profile`."""
    check = checked(value, KIND)
    try:
        profile = decode(check.valid_part(), NodeProfile)
    except msgspec.ValidationError:
        # Without its faulty fields the document is not a profile: the rest cannot be validated.
        raise InputError(location.locate_all(check.faults)) from None
    if faults := [*check.faults, *profile_faults(profile)]:
        raise InputError([*location.locate_all(faults), *_kubelet_config_faults(profile, location.source)])
    return profile


def profile_faults(profile: NodeProfile) -> Iterator[Fault]:
    """Faults beyond the schema: contradictory machines, unknown settings, duplicate devices, invalid pods."""
    spec, name = profile.spec, profile.metadata.name
    # A profile needs no name; one that it has is a Node's.
    for rule in dns1123_subdomain_errors(name) if name else ():
        yield Fault(path="metadata.name", value=name, rule=rule)
    yield from contradictions(spec.machine_info)
    yield from _setting_faults(spec)
    for resource, devices in sorted(spec.devices.items()):
        counts = Counter(device.id for device in devices)
        for name in sorted(name for name, count in counts.items() if count > 1):
            yield Fault(path=f"spec.devices[{resource}]", error="Duplicate value", value=name, rule="")
        yield from _numa_node_faults(resource, devices, spec.machine_info)
    yield from allocation_faults(spec)
    if spec.borrowers is not None:
        yield from amount_faults("spec.borrowers", spec.borrowers)
    for index, not_judged in enumerate(spec.not_judged):
        yield from unsupported_value(f"spec.notJudged[{index}].part", not_judged.part, tuple(NodePart))
    uids: set[str] = set()
    for index, pod in enumerate(spec.pods):
        if (uid := with_uid(pod).uid) in uids:
            rule = "another pod of the profile has this uid, or the same namespace and name without one"
            yield Fault(path=f"spec.pods[{index}]", error="Duplicate value", value=uid, rule=rule)
        uids.add(uid)
        for violation in pod_violations(with_defaults(pod), is_template=True, is_stored=True):
            path = f"spec.pods[{index}].{violation.path}"
            yield Fault(path=path, error=str(violation.type), value=violation.value, rule=violation.rule)


def amount_faults(path: str, amounts: msgspec.Struct) -> Iterator[Fault]:
    """Faults of amounts that no node can have."""
    for name, amount in msgspec.structs.asdict(amounts).items():
        if amount is not None and not 0 <= amount.milli_value() <= INT64_MAX:
            rule = f"must be from 0 to {INT64_MAX} thousandths"
            yield Fault(path=f"{path}.{name}", value=str(amount), rule=rule)


def _numa_node_faults(resource: str, devices: Sequence[Device], machine: MachineInfo) -> Iterator[Fault]:
    known = NUMASet.from_possible_ids(node.node_id for node in machine.topology)
    for index, device in enumerate(devices):
        for position, numa in enumerate(device.numa_nodes or ()):
            if numa < 0 or numa not in known:
                path = f"spec.devices[{resource}][{index}].numaNodes[{position}]"
                rule = f"not a NUMA node of the machine, which has {known or 'none'}"
                yield Fault(path=path, value=numa, rule=rule)


def _setting_faults(spec: NodeProfileSpec) -> Iterator[Fault]:
    yield from unsupported_value("spec.kubeletDefects", spec.kubelet_defects, _DEFECTS)
    for resource, preference in sorted(spec.preferred_allocation.items()):
        yield from preferred_allocation_faults(f"spec.preferredAllocation[{resource}]", preference)
    if spec.cgroup_version not in CGROUP_VERSIONS:
        yield Fault(path="spec.cgroupVersion", value=spec.cgroup_version, rule="must be 1 or 2")
    for field, amount in (
        ("rootFsCapacity", spec.root_fs_capacity),
        ("swapBytes", spec.swap_bytes),
        ("pidMax", spec.pid_max),
    ):
        if amount < 0:
            yield Fault(path=f"spec.{field}", value=amount, rule="must be greater than or equal to 0")
    for name, quantity in spec.allocatable.items():
        if quantity.sign() < 0:
            rule = "must be greater than or equal to 0"
            yield Fault(path=f"spec.allocatable[{name}]", value=str(quantity), rule=rule)
    yield from taint_faults(spec.taints)
    if spec.page_size_bytes <= 0:
        yield Fault(path="spec.pageSizeBytes", value=spec.page_size_bytes, rule="must be greater than zero")


def preferred_allocation_faults(path: str, preference: str) -> Iterator[Fault]:
    """A fault if a device plugin cannot have this allocation preference."""
    yield from unsupported_value(path, preference, PREFERENCES)


def _kubelet_config_faults(profile: NodeProfile, source: str) -> tuple[Fault, ...]:
    """The faults of the kubelet's configuration; alone they do not matter, because commands can replace it."""
    spec = profile.spec
    version = spec.cgroup_version if spec.cgroup_version in CGROUP_VERSIONS else 2
    host = ConfigHost(cgroup_version=version, release=release_table(spec.kubernetes_version))
    try:
        kubelet_config_from(spec.kubelet_configuration, f"{source}: spec.kubeletConfiguration", host=host)
    except InputError as error:
        return error.faults
    return ()
