"""Rules about pods: which QoS class they come to be in, and what that costs them."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodewright.core.requests import (
    QOSClass,
    computed_qos_class,
    is_critical,
    pod_level_resources_set,
    with_defaults,
)
from nodewright.lint.findings import Edit, Found, Rule, Severity
from nodewright.lint.subjects import Around, Part, PodSubject
from nodewright.model.objects import Pod
from nodewright.model.resource_names import CPU, MEMORY, is_extended
from nodewright.values.quantity import ZERO

COUNTED = (CPU, MEMORY)


def _daemons(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Pods of DaemonSets are made again on the node that has just evicted them."""
    if pod.kind != "DaemonSet" or pod.qos_class is QOSClass.GUARANTEED or is_critical(pod.pod):
        return
    edits = [edit for part in pod.complete_parts for edit in level_edits(part)]
    yield Found(path=f"{pod.prefix}spec", facts={"qos": str(pod.qos_class)}, edits=tuple(edits))


def _unpinned_by_others(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Containers whose missing limits take the whole pod, and those that were made for it, out of Guaranteed."""
    if pod.qos_class is not QOSClass.BURSTABLE or pod.pod.spec.resources is not None:
        return
    made_for_it = [part for part in pod.complete_parts if _is_guaranteed(part)]
    if not made_for_it:
        return
    names = ", ".join(part.container.name for part in made_for_it)
    pinned = [part for part in made_for_it if _whole_cpus(part)]
    for part in pod.complete_parts:
        if part in made_for_it or _is_level(part):
            continue
        yield Found(
            path=part.path,
            facts={
                "container": part.container.name,
                "role": part.role,
                "others": names,
                "cpus": ", ".join(f"{one.container.name} ({_whole_cpus(one)})" for one in pinned),
            },
            edits=tuple(level_edits(part)),
        )


def _limits_alone(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Limits that silently become requests."""
    for part in pod.parts:
        limits, requests = part.container.resources.limits, part.container.resources.requests
        alone = [name for name in limits if name in COUNTED and name not in requests]
        if alone:
            yield Found(
                path=f"{part.resources}.limits",
                facts={"container": part.container.name, "resources": " and ".join(alone)},
                edits=tuple(Edit(f"{part.resources}.requests[{name}]", str(limits[name])) for name in alone),
            )


def _empty_pod_level(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """An empty `spec.resources` hides from the QoS class what the containers ask for."""
    level = pod.written.spec.resources
    if level is None or level.requests or level.limits:
        return
    without = with_defaults(_without_pod_level(pod.written))
    otherwise = computed_qos_class(without)
    if otherwise is not QOSClass.BEST_EFFORT:
        path = f"{pod.prefix}spec.resources"
        yield Found(path=path, facts={"otherwise": str(otherwise)}, edits=(Edit(path),))


def _devices_alone(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Devices do not count for the class: a pod with nothing but GPUs is among the first to go."""
    if pod.qos_class is not QOSClass.BEST_EFFORT:
        return
    for part in pod.complete_parts:
        devices = [name for name in part.container.resources.requests if is_extended(name)]
        if devices:
            edits = tuple(_open(f"{part.resources}.requests[{name}]") for name in COUNTED)
            facts = {"container": part.container.name, "devices": ", ".join(sorted(devices))}
            yield Found(path=part.resources, facts=facts, edits=edits)


def _pod_level_not_pinned(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Resources of the pod level keep CPU and memory managers away, unless an alpha gate is on."""
    if pod.qos_class is not QOSClass.GUARANTEED or not pod_level_resources_set(pod.pod):
        return
    if around.nodes and not any(node.ignores_pod_level for node in around.nodes):
        return
    level = pod.pod.spec.resources
    assert level is not None
    cpus = level.requests.get(CPU, ZERO)
    if cpus.milli_value() >= 1000 and not cpus.milli_value() % 1000:
        yield Found(path=f"{pod.prefix}spec.resources", facts={"cpus": str(cpus)})


def _zero_limits(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """A limit of zero is none."""
    for part in pod.parts:
        for name, amount in part.container.resources.limits.items():
            if name in COUNTED and amount.is_zero():
                path = f"{part.resources}.limits[{name}]"
                facts = {"container": part.container.name, "resource": name}
                yield Found(path=path, facts=facts, edits=(Edit(path),))


def _zero_requests(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """A request of zero is one: the limit does not stand in for it."""
    for part in pod.parts:
        resources = part.container.resources
        for name, amount in resources.requests.items():
            limit = resources.limits.get(name, ZERO)
            if name in COUNTED and amount.is_zero() and not limit.is_zero():
                path = f"{part.resources}.requests[{name}]"
                facts = {"container": part.container.name, "resource": name, "limit": str(limit)}
                yield Found(path=path, facts=facts, edits=(Edit(path),))


def _no_ceiling(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """One container without a memory limit, and the pod's cgroup has none."""
    level = pod.pod.spec.resources
    if level is not None and not level.limits.get(MEMORY, ZERO).is_zero():
        return
    running = [part for part in pod.complete_parts if part.role != "init container"]
    limited = [part for part in running if _has_limit(part, MEMORY)]
    for part in running if limited else ():
        if not _has_limit(part, MEMORY):
            facts = {
                "container": part.container.name,
                "role": part.role,
                "others": ", ".join(one.container.name for one in limited),
            }
            edit = _open(f"{part.resources}.limits[{MEMORY}]")
            yield Found(path=part.path, facts=facts, edits=(edit,))


def level_edits(part: Part) -> Iterator[Edit]:
    """What makes requests equal limits, neither zero, on cpu and memory."""
    resources = part.container.resources
    for name in COUNTED:
        request, limit = resources.requests.get(name, ZERO), resources.limits.get(name, ZERO)
        if limit.is_zero() and request.is_zero():
            yield _open(f"{part.resources}.limits[{name}]")
        elif limit.is_zero():
            yield Edit(f"{part.resources}.limits[{name}]", str(request))
        elif request != limit:
            yield Edit(f"{part.resources}.requests[{name}]", str(limit))


def _open(path: str) -> Edit:
    return Edit(path, is_open=True)


def _is_level(part: Part) -> bool:
    return not any(level_edits(part))


def _is_guaranteed(part: Part) -> bool:
    return part.role != "init container" and _is_level(part)


def _whole_cpus(part: Part) -> int:
    """CPUs of its own that the container could have."""
    milli = part.container.resources.requests.get(CPU, ZERO).milli_value()
    return 0 if milli % 1000 else milli // 1000


def _has_limit(part: Part, name: str) -> bool:
    return not part.container.resources.limits.get(name, ZERO).is_zero()


def _without_pod_level(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, resources=None))


QOS_RULES = (
    Rule("NW101", Severity.WARNING, (PodSubject,), _daemons),
    Rule("NW102", Severity.WARNING, (PodSubject,), _unpinned_by_others),
    Rule("NW103", Severity.INFO, (PodSubject,), _limits_alone),
    Rule("NW104", Severity.WARNING, (PodSubject,), _empty_pod_level),
    Rule("NW105", Severity.WARNING, (PodSubject,), _devices_alone),
    Rule("NW106", Severity.INFO, (PodSubject,), _pod_level_not_pinned),
    Rule("NW107", Severity.WARNING, (PodSubject,), _zero_limits),
    Rule("NW108", Severity.INFO, (PodSubject,), _zero_requests),
    Rule("NW109", Severity.INFO, (PodSubject,), _no_ceiling),
)
