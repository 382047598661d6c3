"""The input of `nodewright lint`: the objects in the files, and the nodes, limit ranges and quotas around them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.controllers import POD_TEMPLATES
from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.documents import (
    ENDED_PODS,
    STDIN,
    InputFile,
    is_url,
    provided_content,
    read_file,
)
from nodewright.documents.formats.inventory import Inventory, InventoryObject
from nodewright.documents.formats.kubelet_json import Decoded, DecodingFault
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.kubelet_config_files import (
    config_document,
    decode_kubelet_config,
    with_absolute_paths,
)
from nodewright.documents.profiles.kubelet_forms import (
    FORM_KINDS,
    WrittenKubeletConfig,
    form_documents,
    kubelet_configs,
    read_kubelet_configs,
    unknown_form,
)
from nodewright.documents.profiles.node_profiles import KIND as PROFILE_KIND
from nodewright.documents.profiles.node_profiles import find_profile, profile_from_document
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.core.allocatable import node_resources
from nodewright.engine.core.config.complete_config import complete_config
from nodewright.engine.core.requests.qos_and_priority import is_static
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.claims import (
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
from nodewright.model.kubernetes.cluster_objects import LimitRange, Namespace, ResourceQuota
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault, ConfigStage
from nodewright.model.kubernetes.kubelet_configuration import (
    GROUP_VERSION,
    KubeletConfiguration,
    parse_reservations,
)
from nodewright.model.kubernetes.kubelet_configuration import KIND as KUBELET_KIND
from nodewright.model.kubernetes.node_profile import API_VERSION, NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import counted
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import NEWEST, release_table
from nodewright.predict.lint.lint_model import (
    ConfigSubject,
    DeviceSubject,
    LimitRangeSubject,
    LintContext,
    LintNode,
    PodSubject,
    QuotaSubject,
    Subject,
    SubjectRequest,
)
from nodewright.predict.node_from_profile import node_parts

STATIC_POD_DIRECTORY = "etc/kubernetes/manifests"
KUBELET_GROUP, NODEWRIGHT_GROUP = (version.partition("/")[0] for version in (GROUP_VERSION, API_VERSION))
_IN_PROFILE = "spec.kubeletConfiguration."


class LintInput(msgspec.Struct, frozen=True, kw_only=True):
    """The objects to check and their locations."""

    subjects: tuple[Subject, ...]
    places: tuple[ObjectLocation, ...]
    """By the index of the subject."""
    files: Mapping[str, bytes]
    """All files that were read, in order."""
    context: LintContext
    warnings: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    """Why node profiles and kubelet configurations among the files cannot be checked."""
    notes: tuple[str, ...] = ()
    """How kubelet configurations of distributions are read, and what of them is not judged."""


def without_kubelet_configs(
    inputs: Sequence[str | InputFile],
) -> tuple[list[str | InputFile], list[InputFile]]:
    """The inputs without those named files that are kubelet configurations of a form that is no object, and these."""
    others: list[str | InputFile] = []
    configs: list[InputFile] = []
    for name in inputs:
        file = _small_file(name) if isinstance(name, str) else None
        if file is not None and _is_kubelet_config(file):
            configs.append(file)
        else:
            others.append(name)
    return others, configs


_MAX_CONFIG_BYTES = 1 << 20
_OBJECT = re.compile(rb"apiVersion")
_NO_OBJECT = re.compile(rb"^machine:", re.MULTILINE)
_FORM = re.compile(rb"^(machine|kubeletConfig|kubelet-arg\+?):", re.MULTILINE)
TALOS_VERSION = "v1alpha1"
"""The API version of the other documents of a Talos machine configuration."""


def _is_kubelet_config(file: InputFile) -> bool:
    """Whether the file is a kubelet configuration of a form that the loader of manifests does not know."""
    if _OBJECT.search(file.content) and not _NO_OBJECT.search(file.content):
        return False
    try:
        values = form_documents(file.content, file.source)
        numbers = {config.number for config in kubelet_configs(values, file.source)}
    except InputError:
        return file.source.endswith(".toml") or bool(_FORM.search(file.content))
    if not numbers:
        is_meant = b"kubelet" in file.content.lower() and not _OBJECT.search(file.content)
        return is_meant and bool(values) and isinstance(values[0], dict)
    others = (value for number, value in enumerate(values) if number not in numbers)
    return all(isinstance(value, dict) and value.get("apiVersion") == TALOS_VERSION for value in others)


def _small_file(name: str) -> InputFile | None:
    """The file of a name; None if it is no readable regular file, or a large one."""
    path = Path(name)
    if name == STDIN or is_url(name) or provided_content(name) is not None or not path.is_file():
        return None
    try:
        return None if path.stat().st_size > _MAX_CONFIG_BYTES else read_file(name)
    except (InputError, OSError):
        return None


def load_lint_input(
    inventory: Inventory,
    nodes: Sequence[str] = (),
    kubelet_config: str | None = None,
    *,
    release: str | None = None,
    configs: Sequence[InputFile] = (),
) -> LintInput:
    """The objects of the inventory as subjects, together with the named nodes.

    ``release`` replaces the Kubernetes release that the named nodes run; ``configs`` are kubelet configurations besides.

    Errors: InputError for a node that does not exist, or with an invalid description.
    """
    table = NEWEST if release is None else release_table(release)
    builder = _LintInputBuilder(kubelet_config, table)
    for reference in nodes:
        builder.add_node_reference(reference, release)
    if kubelet_config is not None and not nodes:
        builder.add_kubelet_config(kubelet_config)
    for file in configs:
        builder.add_config_file(file)
    builder.read_forms(inventory.objects)
    for entry in inventory.objects:
        builder.add_entry(entry)
    return builder.build(inventory)


def without_ended_pods(inventory: Inventory) -> Inventory:
    """The inventory without pods that have ended, which count as skipped: no kubelet decides about them again."""
    running = tuple(entry for entry in inventory.objects if not _has_ended(entry))
    ended = len(inventory.objects) - len(running)
    skipped = {**inventory.skipped, ENDED_PODS: ended} if ended else inventory.skipped
    return replace(inventory, objects=running, skipped=skipped)


def _field_names(value: Any) -> list[str]:
    """The names of an object's fields; none if it is no object."""
    return list(value) if isinstance(value, dict) else []


def _has_ended(entry: InventoryObject) -> bool:
    workload = entry.workload
    return workload is not None and workload.kind == "Pod" and workload.pod.is_terminal


@dataclass
class _LintInputBuilder:
    """Collects the subjects."""

    kubelet_config: str | None
    release: ReleaseTable
    """The release of configurations and pods without a node."""
    subjects: list[Subject] = field(default_factory=list)
    places: list[ObjectLocation] = field(default_factory=list)
    nodes: list[LintNode] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    entries: list[InventoryObject] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    configs: dict[ObjectLocation, list[WrittenKubeletConfig]] = field(default_factory=dict)
    """The kubelet configurations in objects, by the object's location."""
    notes: list[str] = field(default_factory=list)

    def build(self, inventory: Inventory) -> LintInput:
        """The complete input."""
        folders = {
            subject.config.static_pod_path.rstrip("/")
            for subject in self.subjects
            if isinstance(subject, ConfigSubject)
        }
        objects = [entry.manifest.object for entry in inventory.objects]
        context = LintContext(
            nodes=tuple(sorted(self.nodes, key=lambda node: node.name)),
            limit_ranges=_by_namespace(inventory, LimitRange),
            quotas=_by_namespace(inventory, ResourceQuota),
            terminating=frozenset(
                obj.manifest.name
                for obj in inventory.objects
                if isinstance(obj.manifest.object, Namespace) and obj.manifest.object.is_terminating
            ),
            slices=tuple(item for item in objects if isinstance(item, ResourceSlice)),
            classes={item.metadata.name: item for item in objects if isinstance(item, DeviceClass)},
            claims=tuple(
                subject
                for subject in self.subjects
                if isinstance(subject, DeviceSubject) and subject.kind != "DeviceClass"
            ),
            release=self.release.name,
        )
        for entry in self.entries:
            self._add_pod(entry, folders)
        return LintInput(
            subjects=tuple(self.subjects),
            places=tuple(self.places),
            files=self.files,
            context=context,
            warnings=inventory.warnings,
            faults=tuple(self.faults),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def read_forms(self, entries: Sequence[InventoryObject]) -> None:
        """Reads the kubelet configurations in the objects, those of a file together."""
        by_source: dict[str, list[InventoryObject]] = {}
        for entry in entries:
            kind = entry.manifest.kind
            if kind in FORM_KINDS:
                by_source.setdefault(entry.location.source, []).append(entry)
            elif (
                kind != PROFILE_KIND
                and "kubelet" in f"{kind} {_field_names(entry.value.get('spec'))}".lower()
            ):
                self.notes.append(f"{entry.location.source}: {kind}: {unknown_form(entry.value)}")
        for source, group in by_source.items():
            try:
                configs = kubelet_configs([entry.value for entry in group], source)
            except InputError as error:
                self.faults.extend(error.faults)
                continue
            for config in configs:
                self.configs.setdefault(group[config.number].location, []).append(config)

    def add_config_file(self, file: InputFile) -> None:
        """Adds the configurations of a file that holds no objects."""
        values = form_documents(file.content, file.source)
        try:
            configs = kubelet_configs(values, file.source)
        except InputError as error:
            self.faults.extend(error.faults)
            return
        if not configs:
            self.faults.append(Fault(rule=unknown_form(values[0]), source=file.source))
            return
        for config in configs:
            place = ObjectLocation(file.source, file.content, config.number + 1, 1, label=KUBELET_KIND)
            self._add_written(config, place)
        count = len(values) - len({config.number for config in configs})
        if count:
            self.notes.append(f"{file.source}: not judged: {counted(count, 'other document')}")

    def _add_written(
        self, config: WrittenKubeletConfig, place: ObjectLocation, profile: NodeProfile | None = None
    ) -> None:
        self._add_config(config.document, place, profile, prefix=config.prefix)
        if note := config.note():
            self.notes.append(f"{place.source}: {note}")

    def add_node_reference(self, reference: str, release: str | None = None) -> None:
        """Adds a node by its file or name."""
        profile = find_profile(reference, release=release)
        name = profile.metadata.name or reference
        if self.kubelet_config is not None:
            self.add_kubelet_config(self.kubelet_config, profile.spec)
        elif profile.spec.kubelet_configuration:
            file = read_file(reference)
            place = ObjectLocation(file.source, file.content, 1, 1, label=f"{PROFILE_KIND} {name}")
            self._add_config(profile.spec.kubelet_configuration, place, profile, prefix=_IN_PROFILE)
        self._add_node(name, profile)

    def add_kubelet_config(self, path: str, spec: NodeProfileSpec | None = None) -> None:
        """Adds a configuration, with the spec of its node if there is one."""
        file = read_file(path)
        profile = None if spec is None else NodeProfile(spec=spec)
        for config in read_kubelet_configs(file) or [
            WrittenKubeletConfig(number=0, document=config_document(path))
        ]:
            place = ObjectLocation(file.source, file.content, config.number + 1, 1, label=KUBELET_KIND)
            self._add_written(config, place, profile)

    def add_entry(self, entry: InventoryObject) -> None:
        """Adds an object of the manifests."""
        place, manifest = entry.location, entry.manifest
        self.files.setdefault(place.source, place.content)
        number = len(self.subjects)
        item = manifest.object
        group = manifest.api_version.partition("/")[0]
        for config in self.configs.get(place, ()):
            self._add_written(config, place)
        if (group, manifest.kind) == (KUBELET_GROUP, KUBELET_KIND) and place not in self.configs:
            self._add_config(entry.value, place)
        elif (group, manifest.kind) == (NODEWRIGHT_GROUP, PROFILE_KIND):
            self._add_profile(entry)
        elif entry.workload is not None:
            self.entries.append(entry)
        elif isinstance(item, LimitRange):
            self._add(LimitRangeSubject(number, manifest.name, manifest.namespace, entry.value, item), place)
        elif isinstance(item, ResourceQuota):
            self._add(QuotaSubject(number, manifest.name, manifest.namespace, entry.value, item), place)
        elif isinstance(item, ResourceClaim | ResourceClaimTemplate | DeviceClass):
            requests = tuple(_device_requests(item, manifest.api_version))
            self._add(
                DeviceSubject(
                    number, manifest.name, manifest.namespace, entry.value, manifest.kind, requests
                ),
                place,
            )

    def _add_profile(self, entry: InventoryObject) -> None:
        place = entry.location
        try:
            profile = profile_from_document(entry.value, place)
        except InputError as error:
            self.faults.extend(error.faults)
            return
        self._add_config(profile.spec.kubelet_configuration, place, profile, prefix=_IN_PROFILE)
        self._add_node(profile.metadata.name or place.source, profile)

    def _add(self, subject: Subject, place: ObjectLocation) -> None:
        self.subjects.append(subject)
        self.places.append(place)
        self.files.setdefault(place.source, place.content)

    def _add_pod(self, entry: InventoryObject, static_folders: set[str]) -> None:
        workload = entry.workload
        assert workload is not None
        written, prefix = _template(entry.value)
        folder = _folder(entry.location.source)
        is_static_pod = workload.kind == "Pod" and (
            is_static(written) or folder.endswith(STATIC_POD_DIRECTORY) or folder in static_folders
        )
        # The amounts of a static pod are not converted to their canonical form.
        if is_static_pod:
            submitted = stored = with_defaults(with_uid(written))
        else:
            submitted = workload.submitted or with_defaults(workload.pod)
            stored = submitted if workload.refusal is not None else with_defaults(workload.pod)
        self._add(
            PodSubject(
                number=len(self.subjects),
                kind=workload.kind,
                name=workload.name,
                namespace=workload.namespace,
                document=entry.value,
                prefix=prefix,
                as_written=written,
                as_submitted=submitted,
                pod=stored,
                is_static=is_static_pod,
                refusal=None if is_static_pod else workload.refusal,
            ),
            entry.location,
        )

    def _add_config(
        self,
        document: Mapping[str, Any],
        place: ObjectLocation,
        profile: NodeProfile | None = None,
        *,
        prefix: str = "",
    ) -> None:
        spec = None if profile is None else profile.spec
        release = self.release if spec is None else release_table(spec.kubernetes_version)
        typed = {"apiVersion": GROUP_VERSION, "kind": KUBELET_KIND, **document}
        decoded = _decoded(typed, place.source, release)
        machine = None if spec is None else spec.machine_info
        version = 2 if spec is None else spec.cgroup_version
        config = with_absolute_paths(decoded.value, place.source)
        complete = complete_config(config, release=release, machine=machine, cgroup_version=version)
        readable = spec is not None and not parse_reservations(complete.config, machine).faults
        subject = ConfigSubject(
            number=len(self.subjects),
            name=place.label.removeprefix(KUBELET_KIND).strip() or PurePath(place.source).name,
            document=document,
            settled=complete,
            faults=tuple(
                ConfigFault(
                    stage=ConfigStage.DECODING, text=fault.message, path=fault.path, value=fault.value
                )
                for fault in decoded.faults
            ),
            unknown_fields=decoded.unknown_fields,
            prefix=prefix,
            machine=machine,
            resources=node_resources(spec.machine_info, spec.root_fs_capacity, complete.config)
            if spec is not None and readable
            else None,
            cgroup_version=version,
            release=release.name,
        )
        self._add(subject, place)

    def _add_node(self, name: str, profile: NodeProfile) -> None:
        """Adds the empty node if its kubelet starts; if it does not, the configuration's findings show why."""
        spec = replace(profile.spec, pods=(), allocations=None)
        try:
            parts, _ = node_parts(
                replace(profile, spec=spec), kubelet_config=self.kubelet_config, source=name
            )
        except InputError:
            if not any(
                isinstance(subject, ConfigSubject) and (subject.faults or subject.settled.faults)
                for subject in self.subjects
            ):
                raise
            return
        started = initial_node(parts)
        if not isinstance(started, Refused) and not parts.resources.over_reserved:
            self.nodes.append(LintNode(name, started.value))


def _decoded(document: dict[str, Any], source: str, release: ReleaseTable) -> Decoded[KubeletConfiguration]:
    """The configuration; an empty one with the fault if the document has another version."""
    try:
        return decode_kubelet_config(document, source, release)
    except InputError as error:
        faults = (
            DecodingFault(path=fault.path, message=fault.rule, value=fault.value, is_final=True)
            for fault in error.faults
        )
        return Decoded(KubeletConfiguration(), tuple(faults), ())


def _template(value: dict[str, Any]) -> tuple[Pod, str]:
    """The pod as written, and its path."""
    template = POD_TEMPLATES.get((value["apiVersion"], value["kind"]))
    if template is None:
        return decode(value, Pod), ""
    document: Any = value
    for step in template.path:
        document = document.get(step) or {}
    return decode(document, Pod), f"{template.dotted_path}."


@lru_cache(maxsize=64)  # a file has many objects
def _folder(source: str) -> str:
    return PurePath(source).parent.as_posix()


def _device_requests(
    item: ResourceClaim | ResourceClaimTemplate | DeviceClass, api_version: str
) -> Iterator[SubjectRequest]:
    if isinstance(item, DeviceClass):
        yield SubjectRequest("spec", item.metadata.name, _expressions(item.spec.selectors))
        return
    spec, prefix = item.spec, "spec"
    if isinstance(spec, ResourceClaimTemplateSpec):
        spec, prefix = spec.spec, "spec.spec"
    exact = "" if api_version.endswith("/v1beta1") else ".exactly"
    for index, request in enumerate(spec.devices.requests):
        path = f"{prefix}.devices.requests[{index}]"
        if request.exactly is not None:
            takes_all = request.exactly.allocation_mode == "All" and not request.exactly.admin_access
            yield _device_request(f"{path}{exact}", request.exactly, takes_all=takes_all)
        for number, each in enumerate(request.first_available):
            takes_all = each.allocation_mode == "All"
            yield _device_request(f"{path}.firstAvailable[{number}]", each, takes_all=takes_all)


def _device_request(
    path: str, request: ExactDeviceRequest | DeviceSubRequest, *, takes_all: bool
) -> SubjectRequest:
    return SubjectRequest(path, request.device_class_name, _expressions(request.selectors), takes_all)


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression if selector.cel else "" for selector in selectors)


def _by_namespace(inventory: Inventory, kind: type) -> dict[str, tuple[Any, ...]]:
    objects: dict[str, list[Any]] = {}
    for manifest in (entry.manifest for entry in inventory.objects):
        if isinstance(manifest.object, kind):
            objects.setdefault(manifest.namespace, []).append(manifest.object)
    return {
        name: tuple(sorted(items, key=lambda item: str(item.metadata.name)))
        for name, items in objects.items()
    }
