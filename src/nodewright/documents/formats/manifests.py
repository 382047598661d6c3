"""Loads workloads from manifests: pods, and the first pod of each controller."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.files.process_tuning import rare_collections
from nodewright.documents.formats.controllers import (
    POD_KIND,
    POD_TEMPLATES,
    controller_violations,
    derived_uid,
    stored_pod_violations,
    submitted_controller,
    submitted_pod,
    with_own_defaults,
)
from nodewright.documents.formats.decode import decode, type_faults
from nodewright.documents.formats.documents import (
    IDLE_LIMIT_RANGES,
    NOT_SELECTED,
    InputFile,
    input_files,
    readable_documents,
)
from nodewright.documents.formats.json_documents import NoteProgress, noted
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.documents.formats.object_location import (
    ObjectLocation,
    listed_items,
    object_label,
    type_meta_faults,
    with_type_meta,
)
from nodewright.documents.formats.object_selection import ALL_OBJECTS, ObjectSelection
from nodewright.documents.formats.workloads import (
    AlikePods,
    CheckedPod,
    LoadedWorkloads,
    UnadmittedWorkload,
    admitted_workload,
    class_warnings,
    created_pods,
    located_faults,
    refused_in_namespace,
    remaining_faults,
    terminating_namespace,
)
from nodewright.engine.admission.admission_plugins import (
    HIGHEST_USER_DEFINABLE_PRIORITY,
    SYSTEM_PRIORITY_CLASS_PREFIX,
    SYSTEM_PRIORITY_CLASSES,
)
from nodewright.engine.admission.api_server.pod_creation import ClusterObjects
from nodewright.engine.admission.validation.pod_spec import pod_violations, preemption_policy_violations
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    metadata_violations,
    name_violations,
)
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.api_request import APIObject
from nodewright.model.kubernetes.cluster_objects import LimitRange, PriorityClass, ResourceQuota, RuntimeClass
from nodewright.model.kubernetes.name_validation import dns1123_label_errors
from nodewright.model.kubernetes.objects import Pod, PodSpec

if TYPE_CHECKING:
    from nodewright.documents.formats.api_objects import OtherObjects
    from nodewright.documents.formats.bound_volumes import VolumeObjects
    from nodewright.documents.formats.machine_types import MachineTypes
    from nodewright.documents.formats.quota_queues import ClusterQueue, ResourceFlavor
    from nodewright.documents.formats.recommendations import Recommendation
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster


@rare_collections()
def load_workloads(
    filenames: Sequence[str | InputFile],
    namespace: str = "default",
    *,
    recursive: bool = False,
    max_bytes: int = MAX_YAML_BYTES,
    selection: ObjectSelection = ALL_OBJECTS,
    note_progress: NoteProgress | None = None,
) -> LoadedWorkloads:
    """The workloads in the files, directories or standard input (`-`) named.

    `namespace` is for objects that name none; `recursive` descends into subdirectories.
    Units:  max_bytes in bytes of YAML a file; JSON may be larger.
    Errors: InputError with the faults of all documents at once.
    """
    loading = ManifestLoader(namespace, max_bytes, selection=selection, note_progress=note_progress)
    load_files(loading, filenames, recursive=recursive)
    return loading.result()


def load_files(
    loading: "ManifestLoader", filenames: Sequence[str | InputFile], *, recursive: bool = False
) -> None:
    """Adds the named files to the loader, which collects their faults."""
    for file in input_files(filenames, loading.faults, recursive=recursive, max_bytes=loading.max_bytes):
        loading.add_file(file)


def workloads_from(content: bytes, source: str, namespace: str = "default") -> LoadedWorkloads:
    """The workloads in the bytes of one file; otherwise like `load_workloads`."""
    loading = ManifestLoader(namespace)
    loading.add_file(InputFile(source, content))
    return loading.result()


_PRIORITY_CLASS = ("scheduling.k8s.io/v1", "PriorityClass")
_RUNTIME_CLASS = ("node.k8s.io/v1", "RuntimeClass")
_SERVED = {kind: version for version, kind in (*POD_TEMPLATES, POD_KIND, _PRIORITY_CLASS, _RUNTIME_CLASS)}
_FORMER_GROUP = "extensions"
_NAMESPACE = ("v1", "Namespace")
_WITHOUT_TEMPLATES = (
    "apiextensions.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "nodewright.dev",
)
"""Groups of objects that hold no pod templates: large or frequent ones, and those of this project."""
_API_GROUPS = (".k8s.io", "nodewright.dev", "kind.x-k8s.io", "node.eks.aws")
_OWN_GROUPS = ("apps", "autoscaling", "batch", "policy", _FORMER_GROUP)
_VOLUMES = (("v1", "PersistentVolume"), ("v1", "PersistentVolumeClaim"))
_CLAIM_GROUP = "resource.k8s.io"
_AUTOSCALER_GROUP, AUTOSCALER_KIND = "autoscaling.k8s.io", "VerticalPodAutoscaler"
_VIRTUAL_MACHINES, _MACHINE_TYPES = ("kubevirt.io", "pool.kubevirt.io"), "instancetype.kubevirt.io"
_QUEUES = "kueue.x-k8s.io"
_POLICIES = (("v1", "LimitRange"), ("v1", "ResourceQuota"))

MAX_LOCATED_FAULTS = 2_000
"""After so many faults the rest of an input is not read: to locate and print them takes longer than to read it."""


class ManifestLoader(msgspec.Struct, eq=False):
    """Collects the workloads, classes and faults of the files added so far."""

    namespace: str
    max_bytes: int = MAX_YAML_BYTES
    workloads: list[UnadmittedWorkload] = []
    priority_classes: list[PriorityClass] = []
    runtime_classes: list[RuntimeClass] = []
    skipped: dict[str, int] = {}
    warnings: list[str] = []
    faults: list[Fault] = []
    uid_counts: dict[str, int] = {}
    other_objects: "OtherObjects | None" = None
    """Collects the objects that create no pods; None: they are only counted in `skipped`, except for `joint_objects`."""
    joint_objects: "OtherObjects | None" = None
    """Limit ranges, quotas, and objects of Dynamic Resource Allocation, if there are any and no `other_objects`."""
    recommendations: "list[Recommendation]" = []
    """What VerticalPodAutoscalers recommend."""
    queues: "list[ClusterQueue | ResourceFlavor]" = []
    """Kueue's queues and flavors."""
    machine_types: "MachineTypes | None" = None
    """KubeVirt's instance types and preferences, if there are any."""
    waiting: list[tuple[dict[str, Any], ObjectLocation]] = []
    """The virtual machines whose instance types have not been read yet."""
    volumes: "VolumeObjects | None" = None
    """Claims and PersistentVolumes, if there are any."""
    terminating_namespaces: set[str] = msgspec.field(default_factory=set)
    """The namespaces among the objects in which nothing new can be created."""
    selection: ObjectSelection = ALL_OBJECTS
    judges_templates: bool = True
    """Whether the pods of custom resources are among the workloads."""
    applies_quotas: bool = True
    """Whether the pods that exceed the quotas among the objects do not exist."""
    note_progress: NoteProgress | None = None
    _alike: AlikePods = msgspec.field(default_factory=AlikePods)
    _loaded: LoadedWorkloads | None = None

    def result(self) -> LoadedWorkloads:
        """The loaded workloads.

        Errors: InputError with all faults.
        """
        if self._loaded is None:
            self._loaded = self._admitted()
        return self._loaded

    def _admitted(self) -> LoadedWorkloads:
        for value, location in self.taken_waiting():
            self._add_custom_pods(value, location, is_last=True)
        if crowded := self.crowded_namespaces():
            raise InputError([*self.faults, *crowded])
        creations = created_pods(self.workloads, self._cluster())
        if faults := remaining_faults(self.faults, self.workloads, creations):
            raise InputError(faults)
        workloads = tuple(
            refused_in_namespace(read)
            if read.is_new and read.workload.namespace in self.terminating_namespaces
            else admitted_workload(read, creation)
            for read, creation in zip(self.workloads, creations, strict=True)
        )
        if self.applies_quotas and self.joint_objects is not None and self.quota_count:
            from nodewright.documents.formats.quota_refusals import (  # noqa: PLC0415 - start-up time
                unknown_usage_warnings,
                with_quota_refusals,
            )

            values = [read.value for read in self.workloads]
            new_pods = [*compress(creations, (not read.is_stored for read in self.workloads))]
            workloads = with_quota_refusals(
                workloads, values, new_pods, self.joint_objects.objects, self.namespace
            )
            self.warnings += unknown_usage_warnings(self.joint_objects.objects)
        skipped = self.skipped | self._idle_limit_ranges()
        if self.volumes is not None:
            workloads, unknown = self.volumes.bound(workloads)
            self.warnings.extend(unknown)
            skipped = Counter(skipped) - self.volumes.used
        return LoadedWorkloads(
            workloads=workloads,
            skipped=dict(sorted(skipped.items())),
            warnings=(*self.warnings, *class_warnings(self.workloads, creations)),
            claims=self._claims(),
            recommendations=tuple(self.recommendations),
            queues=tuple(self.queues),
            quotas=tuple(self._quotas()),
        )

    def _quotas(self) -> Iterator[ResourceQuota]:
        for read in self.joint_objects.objects if self.joint_objects is not None else ():
            if isinstance(read.item, ResourceQuota):
                meta = read.item.metadata
                yield replace(read.item, metadata=replace(meta, namespace=meta.namespace or self.namespace))

    def _claims(self) -> "ClaimCluster | None":
        """The objects of Dynamic Resource Allocation."""
        objects = self.other_objects or self.joint_objects
        versions = () if objects is None else (str(read.value.get("apiVersion")) for read in objects.objects)
        if objects is None or not any(version.startswith(f"{_CLAIM_GROUP}/") for version in versions):
            return None
        from nodewright.documents.formats.claim_objects import claim_cluster  # noqa: PLC0415 - start-up time

        return claim_cluster((read.item for read in objects.objects), self.namespace)

    def _idle_limit_ranges(self) -> dict[str, int]:
        """Counts the limit ranges that no pod of the files is under; they would go unmentioned."""
        namespaces = {read.workload.namespace for read in self.workloads}
        objects = self.joint_objects.objects if self.joint_objects is not None else []
        count = sum(
            isinstance(read.item, LimitRange)
            and (read.item.metadata.namespace or self.namespace) not in namespaces
            for read in objects
        )
        return {IDLE_LIMIT_RANGES: count} if count else {}

    @property
    def quota_count(self) -> int:
        """Number of ResourceQuotas among the objects that take part in the creation of pods."""
        return len([*self._quotas()])

    def merge(self, other: "ManifestLoader") -> None:
        """Adds what the other loader has read."""
        self._loaded = None
        first = len(self.faults)
        for read in other.workloads:
            start, end = read.fault_span
            self.workloads.append(replace(read, fault_span=(start + first, end + first)))
        self.faults += other.faults
        self.priority_classes += other.priority_classes
        self.runtime_classes += other.runtime_classes
        if other.joint_objects is not None:
            self._joint_objects().objects.extend(other.joint_objects.objects)
        self.warnings += other.warnings
        self.terminating_namespaces |= other.terminating_namespaces
        self.recommendations += other.recommendations
        self.queues += other.queues
        self.waiting += other.waiting
        if other.machine_types is not None:
            self._machine_types().merge(other.machine_types)
        for kind, count in other.skipped.items():
            self.count_skipped(kind, count)

    def taken_waiting(self) -> list[tuple[dict[str, Any], ObjectLocation]]:
        """The virtual machines that wait for their instance types, which wait no longer."""
        taken, self.waiting = self.waiting, []
        return taken

    def _machine_types(self) -> "MachineTypes":
        from nodewright.documents.formats.machine_types import MachineTypes  # noqa: PLC0415 - rarely needed

        if self.machine_types is None:
            self.machine_types = MachineTypes()
        return self.machine_types

    def _joint_objects(self) -> "OtherObjects":
        from nodewright.documents.formats.api_objects import OtherObjects  # noqa: PLC0415 - start-up time

        if self.joint_objects is None:
            self.joint_objects = OtherObjects()
        return self.joint_objects

    def crowded_namespaces(self) -> list[Fault]:
        """The faults of namespaces with very many policies."""
        objects = self.other_objects or self.joint_objects
        return objects.crowded_namespaces(self.namespace) if objects is not None else []

    def _cluster(self) -> ClusterObjects:
        """The objects of all files that take part in the creation of pods."""
        limit_ranges: dict[str, tuple[LimitRange, ...]] = {}
        objects = self.other_objects or self.joint_objects
        for loaded in [] if objects is None else objects.objects:
            if isinstance(loaded.item, LimitRange):
                namespace = loaded.item.metadata.namespace or self.namespace
                limit_ranges[namespace] = (*limit_ranges.get(namespace, ()), loaded.item)
        return ClusterObjects(
            priority_classes=tuple(self.priority_classes),
            runtime_classes=tuple(self.runtime_classes),
            limit_ranges=limit_ranges,
        )

    def count_skipped(self, kind: str, count: int = 1) -> None:
        """Counts an object, document or file that is not read."""
        self.skipped[kind] = self.skipped.get(kind, 0) + count

    def add_file(self, file: InputFile) -> None:
        """Adds the documents of a file."""
        first_fault = len(self.faults)
        try:
            documents = readable_documents(file, self.skipped, max_bytes=self.max_bytes, item_by_item=True)
            for document in documents:
                location = ObjectLocation(file.source, file.content, document.number, documents[-1].number)
                self.add_object(document.value, location)
        except InputError as error:  # also of an item in the middle of a large List
            self.faults[first_fault:] = error.faults

    def add_object(self, value: Any, location: ObjectLocation) -> None:
        """Adds an object, or the items of a list; after very many faults, no more."""
        if len(self.faults) > MAX_LOCATED_FAULTS:
            return
        self._loaded = None
        if not isinstance(value, dict):
            self.faults.append(location.locate(Fault(rule="an object is a mapping with apiVersion and kind")))
            return
        version, kind = value.get("apiVersion"), value.get("kind")
        is_selective = self.selection.requirements and not str(kind).endswith("List")
        if is_selective and not self.selection.includes(value):
            self.count_skipped(NOT_SELECTED)
            return
        if not isinstance(version, str) or not isinstance(kind, str) or not version or not kind:
            self.faults.extend(type_meta_faults(version, kind, location))
        elif (items := listed_items(value)) is not None:
            prefix = f"{location.prefix}." if location.prefix else ""
            for index, item in enumerate(noted(items, location.source, self.note_progress)):
                item_location = replace(location, prefix=f"{prefix}items[{index}]")
                self.add_object(with_type_meta(item, version, kind), item_location)
        else:
            self._add_kind(value, version, kind, location)

    def _add_kind(self, value: dict[str, Any], version: str, kind: str, location: ObjectLocation) -> None:
        if (version, kind) == _NAMESPACE and (name := terminating_namespace(value)):
            self.terminating_namespaces.add(name)
        served, group = _SERVED.get(kind), version.rpartition("/")[0]
        location = replace(location, label=object_label(value, version, kind, self.namespace))
        if served is None or group not in (served.rpartition("/")[0], _FORMER_GROUP):
            self._add_other_kind(value, version, kind, location)
            return
        if version != served:
            rule = f'no matches for kind "{kind}" in version "{version}"; Kubernetes serves {served}'
            self.faults.append(location.locate(Fault(rule=rule, path="apiVersion")))
            return
        checked_pod = self._alike.check(value, kind)
        check = checked_pod.check
        valid_value = check.valid_part()
        violations = list(
            self._add_pod(valid_value, location, checked_pod)
            if (version, kind) == POD_KIND
            else self._add_valid_object(valid_value, location)
        )
        if kind != "Pod" and (version, kind) in POD_TEMPLATES:
            violations.extend(controller_violations(valid_value))
        start = len(self.faults)
        self.faults.extend(located_faults(location, (*check.faults, *violations)))
        if kind == "Pod" and violations:
            self.workloads[-1] = replace(
                self.workloads[-1],
                location=location,
                faults=tuple(check.faults),
                violations=tuple(violations),
                fault_span=(start, len(self.faults)),
            )

    def _add_other_kind(
        self, value: dict[str, Any], version: str, kind: str, location: ObjectLocation
    ) -> None:
        """Adds an object of a kind that is none of the workloads: a policy, a custom resource, or any other one."""
        group = version.rpartition("/")[0]
        objects = self.other_objects or (
            self._joint_objects() if (version, kind) in _POLICIES or group == _CLAIM_GROUP else None
        )
        if (
            group
            and group not in _OWN_GROUPS
            and not group.endswith(_API_GROUPS)
            and not value.get("metadata")
        ):
            # A file for a program, e.g. KubeAPIServerConfig: objects have names.
            self.count_skipped(_kind_text(kind, group))
            return
        if objects is not None:
            self.faults.extend(located_faults(location, objects.add(value, location)))
        is_judged = False
        if (version, kind) in _VOLUMES:
            self._add_volume(value, location)
        if (group, kind) == (_AUTOSCALER_GROUP, AUTOSCALER_KIND):
            self._add_recommendation(value, location)
        if group == _QUEUES:
            self._add_queue_object(value, location)
        if group == _MACHINE_TYPES:
            self.faults.extend(map(location.locate, self._machine_types().add(value, self.namespace)))
            return
        if "." in group and group not in _WITHOUT_TEMPLATES:
            is_judged = self._add_custom_pods(value, location)
        if objects is None and not is_judged:
            self.count_skipped(_kind_text(kind, group))

    def _add_recommendation(self, value: dict[str, Any], location: ObjectLocation) -> None:
        from nodewright.documents.formats.recommendations import read_recommendation  # noqa: PLC0415 - rarely needed

        try:
            self.recommendations.append(read_recommendation(value, self.namespace))
        except InputError as error:
            self.faults.extend(location.locate(fault) for fault in error.faults)

    def _add_queue_object(self, value: dict[str, Any], location: ObjectLocation) -> None:
        from nodewright.documents.formats.quota_queues import read_queue_object  # noqa: PLC0415 - rarely needed

        try:
            read = read_queue_object(value)
            self.queues += [] if read is None else [read]
        except InputError as error:
            self.faults.extend(location.locate(fault) for fault in error.faults)

    def _add_volume(self, value: dict[str, Any], location: ObjectLocation) -> None:
        from nodewright.documents.formats.bound_volumes import VolumeObjects  # noqa: PLC0415 - start-up time

        self.volumes = self.volumes or VolumeObjects()
        try:
            self.volumes.add(value, self.namespace)
        except msgspec.ValidationError:
            if self.other_objects is None:  # else its faults are found with those of all objects
                faults = type_faults(value, value["kind"])
                self.faults.extend(map(location.locate, faults))

    def _add_custom_pods(
        self, value: dict[str, Any], location: ObjectLocation, *, is_last: bool = False
    ) -> bool:
        """Adds the pods of a custom resource, and warnings about those that are not judged; whether any is judged."""
        from nodewright.documents.formats import custom_resources  # noqa: PLC0415 - rarely needed

        is_judged = False
        try:
            if value["apiVersion"].partition("/")[0] in _VIRTUAL_MACHINES:
                typed = self._typed(value, location, is_last=is_last)
                if typed is None:
                    return True
                value = typed
            pods = [
                *custom_resources.judged_custom_pods(
                    value, location.label, self.selection.custom_kinds, judges_templates=self.judges_templates
                )
            ]
        except InputError as error:
            self.faults.extend(location.locate(fault) for fault in error.faults)
            return True
        for pod in pods:
            if isinstance(pod, str):
                self.warnings.append(pod)
                continue
            is_judged = True
            first, first_fault = len(self.workloads), len(self.faults)
            template_location = custom_resources.location_of_template(location, pod)
            self.add_object(custom_resources.pod_template(value, pod), template_location)
            self.faults[first_fault:] = custom_resources.faults_in_custom_resource(
                self.faults[first_fault:], location.label, pod.path
            )
            self.workloads[first:] = [
                replace(read, workload=custom_resources.owned_workload(read.workload, value, pod))
                for read in self.workloads[first:]
            ]
        return is_judged

    def _typed(
        self, value: dict[str, Any], location: ObjectLocation, *, is_last: bool
    ) -> dict[str, Any] | None:
        """The virtual machine with what its instance type gives it; None: it waits for the type."""
        typed, unknown = self._machine_types().applied(value, self.namespace)
        if unknown and not is_last:
            self.waiting.append((value, location))
            return None
        if name := unknown.get("preference"):
            rule = f"the preference {name} is not among the files, so it does not count"
            self.warnings.append(f"{location.label}: {rule}")
        return typed

    def _add_object_in_order(
        self, value: dict[str, Any], location: ObjectLocation, item: APIObject | int
    ) -> None:
        if self.other_objects is not None:
            self.other_objects.add_loaded(value, location, item)

    def _add_valid_object(self, value: dict[str, Any], location: ObjectLocation) -> Iterable[Violation]:
        """Adds an object that passed the schema check; returns the API server's validation errors."""
        version, kind = value["apiVersion"], value["kind"]
        if (version, kind) == _PRIORITY_CLASS:
            priority_class = decode(value, PriorityClass)
            self.priority_classes.append(priority_class)
            self._add_object_in_order(value, location, priority_class)
            return priority_class_violations(priority_class)
        if (version, kind) == _RUNTIME_CLASS:
            runtime_class = decode(value, RuntimeClass)
            self.runtime_classes.append(runtime_class)
            self._add_object_in_order(value, location, runtime_class)
            return runtime_class_violations(runtime_class)
        submission = submitted_controller(value, self.namespace, location, self._alike)
        self._add_workload(value, location, submission.read)
        return submission.violations

    def _add_pod(
        self, value: dict[str, Any], location: ObjectLocation, checked_pod: CheckedPod
    ) -> Iterable[Violation]:
        submission = submitted_pod(value, self.namespace, location, checked_pod)
        read = self._add_workload(value, location, submission.read)
        pod = with_own_defaults(read)
        violations = stored_pod_violations(pod, submission, has_valid_spec=checked_pod.has_valid_spec)
        if not violations:
            self._alike.add_valid(checked_pod, read.workload.pod.spec)
        self.workloads[-1] = replace(read, submitted=pod, valid=None if violations else pod)
        return violations

    def _add_workload(
        self, value: dict[str, Any], location: ObjectLocation, read: UnadmittedWorkload
    ) -> UnadmittedWorkload:
        workload = replace(read.workload, pod=self._with_unique_uid(read.workload.pod))
        self._add_object_in_order(value, location, len(self.workloads))
        self.workloads.append(replace(read, workload=workload))
        return self.workloads[-1]

    def _with_unique_uid(self, pod: Pod) -> Pod:
        """The pod with a unique uid; adds a warning where another pod has the same uid."""
        uid = pod.uid
        count = self.uid_counts[uid] = self.uid_counts.get(uid, 0) + 1
        # An inventory handles duplicates itself (`without_duplicates`).
        if count == 1 or self.other_objects is not None:
            return pod
        self.warnings.append(
            f"{pod.full_name} is defined more than once; each definition counts as a separate pod"
        )
        meta = replace(pod.metadata, uid=derived_uid(f"{uid}/{count}"))
        return replace(pod, metadata=meta)


def _kind_text(kind: str, group: str) -> str:
    """The kind, with its group where Kubernetes has another kind of that name."""
    return f"{kind}.{group}" if kind in _SERVED and group else kind


def priority_class_violations(priority_class: PriorityClass) -> Iterator[Violation]:
    """The API server's validation errors of a PriorityClass.

    Follows: v1.36, pkg/apis/scheduling/validation/validation.go, ValidatePriorityClass.
    """
    yield from metadata_violations(priority_class.metadata)
    if priority_class.metadata.name.startswith(SYSTEM_PRIORITY_CLASS_PREFIX):
        if priority_class.metadata.name not in SYSTEM_PRIORITY_CLASSES:
            rule = "priority class names with 'system-' prefix are reserved for system use only"
            yield Violation("metadata.name", ErrorType.FORBIDDEN, rule=rule)
    elif priority_class.value > HIGHEST_USER_DEFINABLE_PRIORITY:
        rule = f"maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE_PRIORITY}"
        yield Violation("value", ErrorType.FORBIDDEN, rule=rule)
    yield from preemption_policy_violations(priority_class.preemption_policy, "preemptionPolicy")


def runtime_class_violations(runtime_class: RuntimeClass) -> Iterator[Violation]:
    """The API server's validation errors of a RuntimeClass.

    Follows: v1.36, pkg/apis/node/validation/validation.go, ValidateRuntimeClass.
    """
    yield from metadata_violations(
        runtime_class.metadata, keeps_generation=True, names_finalizers_freely=True
    )
    yield from name_violations("handler", runtime_class.handler, dns1123_label_errors)
    scheduling = runtime_class.scheduling
    spec = PodSpec(
        overhead=None if runtime_class.overhead is None else runtime_class.overhead.pod_fixed,
        node_selector=scheduling.node_selector,
        tolerations=scheduling.tolerations,
    )
    for violation in pod_violations(Pod(spec=spec), is_template=True):
        for pod_path, class_path in _RUNTIME_CLASS_PATHS.items():
            if violation.path.startswith(pod_path):
                yield replace(violation, path=class_path + violation.path.removeprefix(pod_path))
    before = set()
    for index, toleration in enumerate(scheduling.tolerations):
        own = {name: getattr(toleration, name.lower()) for name in ("Key", "Operator", "Value", "Effect")}
        if (key := tuple(own.values())) in before:
            own["TolerationSeconds"] = toleration.toleration_seconds
            yield Violation(f"scheduling.tolerations[{index}]", ErrorType.DUPLICATE, own)
        before.add(key)


_RUNTIME_CLASS_PATHS = {
    "spec.overhead.limits": "overhead.podFixed",
    "spec.nodeSelector": "scheduling.nodeSelector",
    "spec.tolerations": "scheduling.tolerations",
}
