"""Rules about the QoS class of pods and its consequences."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.core.requests.qos_and_priority import QOSClass, computed_qos_class, is_critical
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_extended
from nodewright.model.values.quantity import ZERO
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LintContext,
    LintRule,
    PodSubject,
    Severity,
    SubjectContainer,
    SuggestedEdit,
)

COUNTED = (CPU, MEMORY)


def _daemons(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Evicted pods of DaemonSets are recreated on the same node."""
    if pod.kind != "DaemonSet" or pod.qos_class is QOSClass.GUARANTEED or is_critical(pod.pod):
        return
    edits = [edit for part in pod.defaulted_containers for edit in guaranteed_edits(part)]
    yield FieldViolation(path=f"{pod.prefix}spec", facts={"qos": str(pod.qos_class)}, edits=tuple(edits))


def _unpinned_by_others(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Containers without limits that make the pod Burstable, while the others would make it Guaranteed."""
    if pod.qos_class is not QOSClass.BURSTABLE or pod.pod.spec.resources is not None:
        return
    guaranteed = [part for part in pod.defaulted_containers if _is_guaranteed(part)]
    if not guaranteed:
        return
    names = ", ".join(part.container.name for part in guaranteed)
    pinned = [part for part in guaranteed if _whole_cpus(part)]
    for part in pod.defaulted_containers:
        if part in guaranteed or _requests_equal_limits(part):
            continue
        yield FieldViolation(
            path=part.path,
            facts={
                "container": part.container.name,
                "role": part.role,
                "others": names,
                "cpus": ", ".join(
                    f"{pinned_part.container.name} ({_whole_cpus(pinned_part)})" for pinned_part in pinned
                ),
            },
            edits=tuple(guaranteed_edits(part)),
        )


def _limits_alone(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Limits that silently become requests."""
    for part in pod.written_containers:
        limits, requests = part.container.resources.limits, part.container.resources.requests
        alone = [name for name in limits if name in COUNTED and name not in requests]
        if alone:
            yield FieldViolation(
                path=f"{part.resources_path}.limits",
                facts={"container": part.container.name, "resources": " and ".join(alone)},
                edits=tuple(
                    SuggestedEdit(f"{part.resources_path}.requests[{name}]", str(limits[name]))
                    for name in alone
                ),
            )


def _empty_pod_level(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """An empty `spec.resources` hides the containers' requests from the QoS class."""
    level = pod.as_written.spec.resources
    if level is None or level.requests or level.limits:
        return
    without = with_defaults(_without_pod_level(pod.as_written))
    otherwise = computed_qos_class(without)
    if otherwise is not QOSClass.BEST_EFFORT:
        path = f"{pod.prefix}spec.resources"
        yield FieldViolation(path=path, facts={"otherwise": str(otherwise)}, edits=(SuggestedEdit(path),))


def _devices_alone(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Devices do not count for the class: a pod with only GPUs is among the first to be evicted."""
    if pod.qos_class is not QOSClass.BEST_EFFORT:
        return
    for part in pod.defaulted_containers:
        devices = [name for name in part.container.resources.requests if is_extended(name)]
        if devices:
            edits = tuple(_edit_without_value(f"{part.resources_path}.requests[{name}]") for name in COUNTED)
            facts = {"container": part.container.name, "devices": ", ".join(sorted(devices))}
            yield FieldViolation(path=part.resources_path, facts=facts, edits=edits)


def _pod_level_not_pinned(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """The CPU and memory managers ignore pods with pod-level resources unless an alpha gate is on."""
    if pod.qos_class is not QOSClass.GUARANTEED or not pod_level_resources_set(pod.pod):
        return
    if context.nodes and not any(node.ignores_pod_level for node in context.nodes):
        return
    level = pod.pod.spec.resources
    assert level is not None
    cpus = level.requests.get(CPU, ZERO)
    if cpus.milli_value() >= 1000 and not cpus.milli_value() % 1000:
        yield FieldViolation(path=f"{pod.prefix}spec.resources", facts={"cpus": str(cpus)})


def _zero_limits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A limit of zero is no limit."""
    for part in pod.written_containers:
        for name, amount in part.container.resources.limits.items():
            if name in COUNTED and amount.is_zero():
                path = f"{part.resources_path}.limits[{name}]"
                facts = {"container": part.container.name, "resource": name}
                yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


def _zero_requests(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A request of zero counts as set: the limit does not replace it."""
    for part in pod.written_containers:
        resources = part.container.resources
        for name, amount in resources.requests.items():
            limit = resources.limits.get(name, ZERO)
            if name in COUNTED and amount.is_zero() and not limit.is_zero():
                path = f"{part.resources_path}.requests[{name}]"
                facts = {"container": part.container.name, "resource": name, "limit": str(limit)}
                yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


def _no_ceiling(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """One container without a memory limit leaves the pod's cgroup without one."""
    level = pod.pod.spec.resources
    if level is not None and not level.limits.get(MEMORY, ZERO).is_zero():
        return
    running = [part for part in pod.defaulted_containers if part.role != "init container"]
    limited = [part for part in running if _has_limit(part, MEMORY)]
    for part in running if limited else ():
        if not _has_limit(part, MEMORY):
            facts = {
                "container": part.container.name,
                "role": part.role,
                "others": ", ".join(other.container.name for other in limited),
            }
            edit = _edit_without_value(f"{part.resources_path}.limits[{MEMORY}]")
            yield FieldViolation(path=part.path, facts=facts, edits=(edit,))


def _without_requests(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Containers of a BestEffort pod about whose resources nobody decided: `resources: {}` is a decision."""
    if pod.qos_class is not QOSClass.BEST_EFFORT or pod.as_written.spec.resources is not None:
        return
    undecided = [
        part
        for part in pod.written_containers
        if part.role != "init container" and pod.written_value(part.path, "resources") is None
    ]
    if undecided:
        edits = tuple(
            _edit_without_value(f"{part.resources_path}.requests[{name}]")
            for part in undecided
            for name in COUNTED
        )
        names = ", ".join(part.container.name for part in undecided)
        yield FieldViolation(path=undecided[0].path, facts={"containers": names}, edits=edits)


def _without_memory_request(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Containers that request CPU, but no memory: any memory that they use exceeds their request."""
    if pod.pod.spec.resources is not None:
        return
    for part in pod.defaulted_containers:
        requests = part.container.resources.requests
        if part.role != "init container" and CPU in requests and MEMORY not in requests:
            edit = _edit_without_value(f"{part.resources_path}.requests[{MEMORY}]")
            yield FieldViolation(
                path=part.resources_path, facts={"container": part.container.name}, edits=(edit,)
            )


def guaranteed_edits(part: SubjectContainer) -> Iterator[SuggestedEdit]:
    """The edits that make requests equal limits, neither zero, on cpu and memory."""
    resources = part.container.resources
    for name in COUNTED:
        request, limit = resources.requests.get(name, ZERO), resources.limits.get(name, ZERO)
        if limit.is_zero() and request.is_zero():
            yield _edit_without_value(f"{part.resources_path}.limits[{name}]")
        elif limit.is_zero():
            yield SuggestedEdit(f"{part.resources_path}.limits[{name}]", str(request))
        elif request != limit:
            yield SuggestedEdit(f"{part.resources_path}.requests[{name}]", str(limit))


def _edit_without_value(path: str) -> SuggestedEdit:
    return SuggestedEdit(path, needs_value=True)


def _requests_equal_limits(part: SubjectContainer) -> bool:
    return not any(guaranteed_edits(part))


def _is_guaranteed(part: SubjectContainer) -> bool:
    return part.role != "init container" and _requests_equal_limits(part)


def _whole_cpus(part: SubjectContainer) -> int:
    """The exclusive CPUs that the container could get."""
    milli = part.container.resources.requests.get(CPU, ZERO).milli_value()
    return 0 if milli % 1000 else milli // 1000


def _has_limit(part: SubjectContainer, name: str) -> bool:
    return not part.container.resources.limits.get(name, ZERO).is_zero()


def _without_pod_level(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, resources=None))


QOS_RULES = (
    LintRule("NW101", Severity.WARNING, (PodSubject,), _daemons),
    LintRule("NW102", Severity.WARNING, (PodSubject,), _unpinned_by_others),
    LintRule("NW103", Severity.INFO, (PodSubject,), _limits_alone),
    LintRule("NW104", Severity.WARNING, (PodSubject,), _empty_pod_level, since="1.34"),
    LintRule("NW105", Severity.WARNING, (PodSubject,), _devices_alone),
    LintRule("NW106", Severity.INFO, (PodSubject,), _pod_level_not_pinned, since="1.34"),
    LintRule("NW107", Severity.WARNING, (PodSubject,), _zero_limits),
    LintRule("NW108", Severity.INFO, (PodSubject,), _zero_requests),
    LintRule("NW109", Severity.INFO, (PodSubject,), _no_ceiling),
    LintRule("NW118", Severity.INFO, (PodSubject,), _without_requests),
    LintRule("NW119", Severity.INFO, (PodSubject,), _without_memory_request),
)
