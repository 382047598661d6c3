"""What `nodewright lint` is asked about: files as objects to look at, with what stands around them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from nodewright.ask import parts_of
from nodewright.core.allocatable import node_resources
from nodewright.core.arrival import identified
from nodewright.core.config import settled
from nodewright.core.limits import WithinLimits, limited
from nodewright.core.requests import is_static, with_defaults
from nodewright.lint.subjects import (
    Around,
    ConfigSubject,
    LimitsSubject,
    LintNode,
    PodSubject,
    QuotaSubject,
    Subject,
)
from nodewright.model.api_request import creation
from nodewright.model.faults import ConfigFault, Stage
from nodewright.model.kubelet_config import GROUP_VERSION, KubeletConfiguration
from nodewright.model.kubelet_config import KIND as KUBELET_KIND
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION, NodeProfile, NodeProfileSpec
from nodewright.model.quota_objects import LimitRange, ResourceQuota
from nodewright.model.reservations import read_reservations
from nodewright.model.verdict import Refused
from nodewright.node.start import start
from nodewright.world.decode import decode
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.gojson import Decoded, DecodingFault
from nodewright.world.inventory import Entry, Inventory
from nodewright.world.kubelet_config import config_document, decode_document
from nodewright.world.nodes import find_profile
from nodewright.world.places import Place
from nodewright.world.profiles import KIND as PROFILE_KIND
from nodewright.world.profiles import profile_of
from nodewright.world.templates import TEMPLATES

STATIC_FOLDER = "etc/kubernetes/manifests"
KUBELET_GROUP, OWN_GROUP = (version.partition("/")[0] for version in (GROUP_VERSION, API_VERSION))
_IN_PROFILE = "spec.kubeletConfiguration."


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The objects to look at, and where each of them stands."""

    subjects: tuple[Subject, ...]
    places: tuple[Place, ...]
    """By the number of the subject."""
    files: Mapping[str, bytes]
    """All files that were read, in order."""
    around: Around
    warnings: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    """What keeps node profiles among the files from being looked at."""


def question(inventory: Inventory, nodes: Sequence[str] = (), kubelet_config: str | None = None) -> Question:
    """What the objects of the inventory are, with the nodes named around them.

    Errors: InputError for a node that there is not, or whose description is wrong.
    """
    asking = _Asking(kubelet_config)
    for reference in nodes:
        asking.take_reference(reference)
    if kubelet_config is not None and not nodes:
        asking.take_kubelet_config(kubelet_config)
    for entry in inventory.entries:
        asking.take_entry(entry)
    return asking.asked(inventory)


@dataclass
class _Asking:
    """What was found so far."""

    kubelet_config: str | None
    subjects: list[Subject] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    nodes: list[LintNode] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def asked(self, inventory: Inventory) -> Question:
        """All of it."""
        folders = {
            one.config.static_pod_path.rstrip("/") for one in self.subjects if isinstance(one, ConfigSubject)
        }
        around = Around(
            nodes=tuple(sorted(self.nodes, key=lambda one: one.name)),
            limit_ranges=_by_namespace(
                one for one in inventory.entries if isinstance(one.manifest.object, LimitRange)
            ),
            quotas=_by_namespace(
                one for one in inventory.entries if isinstance(one.manifest.object, ResourceQuota)
            ),
        )
        for entry in self.entries:
            self._add_pod(entry, folders, around)
        return Question(
            subjects=tuple(self.subjects),
            places=tuple(self.places),
            files=self.files,
            around=around,
            warnings=inventory.warnings,
            faults=tuple(self.faults),
        )

    def take_reference(self, reference: str) -> None:
        """Take in a node by its file or name."""
        profile = find_profile(reference)
        name = profile.metadata.name or reference
        if self.kubelet_config is not None:
            self.take_kubelet_config(self.kubelet_config, profile.spec)
        elif profile.spec.kubelet_configuration:
            file = read_file(reference)
            place = Place(file.source, file.content, 1, 1, label=f"{PROFILE_KIND} {name}")
            self._add_config(profile.spec.kubelet_configuration, place, profile, prefix=_IN_PROFILE)
        self._add_node(name, profile)

    def take_kubelet_config(self, path: str, spec: NodeProfileSpec | None = None) -> None:
        """Take in a configuration; with the node that it is for, if there is one."""
        file = read_file(path)
        place = Place(file.source, file.content, 1, 1, label=KUBELET_KIND)
        profile = None if spec is None else NodeProfile(spec=spec)
        self._add_config(config_document(path), place, profile)

    def take_entry(self, entry: Entry) -> None:
        """Take in an object of the manifests."""
        place, manifest = entry.place, entry.manifest
        self.files.setdefault(place.source, place.content)
        number = len(self.subjects)
        item = manifest.object
        group = manifest.api_version.partition("/")[0]
        if (group, manifest.kind) == (KUBELET_GROUP, KUBELET_KIND):
            self._add_config(entry.value, place)
        elif (group, manifest.kind) == (OWN_GROUP, PROFILE_KIND):
            self._take_profile(entry)
        elif entry.workload is not None:
            self.entries.append(entry)
        elif isinstance(item, LimitRange):
            self._add(LimitsSubject(number, manifest.name, manifest.namespace, entry.value, item), place)
        elif isinstance(item, ResourceQuota):
            self._add(QuotaSubject(number, manifest.name, manifest.namespace, entry.value, item), place)

    def _take_profile(self, entry: Entry) -> None:
        place = entry.place
        try:
            profile = profile_of(entry.value, place)
        except InputError as error:
            self.faults.extend(error.faults)
            return
        self._add_config(profile.spec.kubelet_configuration, place, profile, prefix=_IN_PROFILE)
        self._add_node(profile.metadata.name or place.source, profile)

    def _add(self, subject: Subject, place: Place) -> None:
        self.subjects.append(subject)
        self.places.append(place)
        self.files.setdefault(place.source, place.content)

    def _add_pod(self, entry: Entry, static_folders: set[str], around: Around) -> None:
        workload = entry.workload
        assert workload is not None
        written, prefix = _template(entry.value)
        folder = PurePath(entry.place.source).parent.as_posix()
        static = workload.kind == "Pod" and (
            is_static(written) or folder.endswith(STATIC_FOLDER) or folder in static_folders
        )
        # Nobody puts the amounts of a static pod into their canonical form.
        sent = with_defaults(identified(written) if static else workload.pod)
        ranges = () if static else around.limit_ranges.get(workload.namespace, ())
        self._add(
            PodSubject(
                number=len(self.subjects),
                kind=workload.kind,
                name=workload.name,
                namespace=workload.namespace,
                document=entry.value,
                prefix=prefix,
                written=written,
                sent=sent,
                pod=_filled(sent, ranges),
                is_static=static,
            ),
            entry.place,
        )

    def _add_config(
        self,
        document: Mapping[str, Any],
        place: Place,
        profile: NodeProfile | None = None,
        *,
        prefix: str = "",
    ) -> None:
        spec = None if profile is None else profile.spec
        subject = _config(document, place, spec, number=len(self.subjects), prefix=prefix)
        self._add(subject, place)

    def _add_node(self, name: str, profile: NodeProfile) -> None:
        """The node with nothing on it, if its kubelet starts; why it does not, the configuration tells."""
        spec = replace(profile.spec, pods=(), allocations=None)
        try:
            parts, _ = parts_of(replace(profile, spec=spec), kubelet_config=self.kubelet_config, source=name)
        except InputError:
            if not any(
                isinstance(one, ConfigSubject) and (one.faults or one.settled.faults) for one in self.subjects
            ):
                raise
            return
        started = start(parts)
        if not isinstance(started, Refused) and not parts.resources.over_reserved:
            self.nodes.append(LintNode(name, started.value))


def _config(
    document: Mapping[str, Any], place: Place, spec: NodeProfileSpec | None, *, number: int, prefix: str
) -> ConfigSubject:
    decoded = _decoded({"apiVersion": GROUP_VERSION, "kind": KUBELET_KIND, **document}, place.source)
    machine = None if spec is None else spec.machine_info
    version = 2 if spec is None else spec.cgroup_version
    complete = settled(decoded.value, machine=machine, cgroup_version=version)
    readable = spec is not None and not read_reservations(complete.config, machine).faults
    return ConfigSubject(
        number=number,
        name=place.label.removeprefix(KUBELET_KIND).strip() or PurePath(place.source).name,
        document=document,
        settled=complete,
        faults=tuple(
            ConfigFault(stage=Stage.DECODING, text=one.text, path=one.path, value=one.value)
            for one in decoded.faults
        ),
        unknown=decoded.unknown,
        prefix=prefix,
        machine=machine,
        resources=node_resources(spec.machine_info, spec.root_fs_capacity, complete.config)
        if spec is not None and readable
        else None,
        cgroup_version=version,
    )


def _decoded(document: dict[str, Any], source: str) -> Decoded[KubeletConfiguration]:
    """The configuration; one that says nothing, with the fault, where the document is of another version."""
    try:
        return decode_document(document, source)
    except InputError as error:
        faults = (
            DecodingFault(path=one.path, text=one.rule, value=one.value, is_final=True)
            for one in error.faults
        )
        return Decoded(KubeletConfiguration(), tuple(faults), ())


def _filled(pod: Pod, ranges: Sequence[LimitRange]) -> Pod:
    """The pod with what limit ranges give to it; as it is, where they forbid it."""
    verdict = limited(creation(pod), ranges) if ranges else None
    return verdict.pod if isinstance(verdict, WithinLimits) else pod


def _template(value: dict[str, Any]) -> tuple[Pod, str]:
    """The pod as it is written, and the way to it."""
    template = TEMPLATES.get((value["apiVersion"], value["kind"]))
    if template is None:
        return decode(value, Pod), ""
    found: Any = value
    for step in template.path:
        found = found.get(step) or {}
    return decode(found, Pod), f"{template.text}."


def _by_namespace(entries: Iterable[Entry]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, list[Any]] = {}
    for entry in entries:
        found.setdefault(entry.manifest.namespace, []).append(entry.manifest.object)
    return {
        name: tuple(sorted(items, key=lambda one: str(one.metadata.name))) for name, items in found.items()
    }
