"""Rules about the QoS class of pods and its consequences."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.core.requests.qos_and_priority import QOSClass, computed_qos_class, is_critical
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_extended
from nodewright.model.printable import counted
from nodewright.model.values.quantity import ZERO
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LintContext,
    PodSubject,
    Severity,
    SubjectContainer,
    SuggestedEdit,
    lint_rule,
)

COUNTED = (CPU, MEMORY)


@lint_rule("NW101", Severity.WARNING, PodSubject)
def _daemons(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Pods of a DaemonSet that can be evicted.

    Finding: its pods are {qos}: if they use more memory than they request, memory pressure evicts them, and they
    are recreated on the same node

    Under memory pressure the kubelet evicts pods that use more memory than they request before all others. A
    Guaranteed pod cannot use more: its limit is its request. The DaemonSet controller recreates an evicted pod on
    the same node, with a growing delay, because daemon pods tolerate the taints of a node under pressure; so it is
    evicted again while the pressure lasts. Other pressure does not depend on the QoS class: disk pressure compares
    usage with requests of ephemeral-storage, pressure on PIDs the priority, and under both the kubelet rejects new
    pods that are not critical. Pods of critical priority (`system-node-critical`, `system-cluster-critical`) are
    never evicted.

    Remedy: Give every container limits on cpu and memory that equal its requests, which helps under memory
    pressure; or, if the node needs the pod, set `priorityClassName: system-node-critical`, which helps under all
    pressure.

    ```diff
     apiVersion: apps/v1
     kind: DaemonSet
     metadata:
       name: agent
     spec:
       selector:
         matchLabels: {app: agent}
       template:
         metadata:
           labels: {app: agent}
         spec:
           containers:
           - name: agent
             image: example.com/agent
             resources:
    -          requests: {cpu: 100m, memory: 64Mi}
    -          limits: {memory: 128Mi}
    +          requests: {cpu: 100m, memory: 128Mi}
    +          limits: {cpu: 100m, memory: 128Mi}
    ```
    """
    if pod.kind != "DaemonSet" or pod.qos_class is QOSClass.GUARANTEED or is_critical(pod.pod):
        return
    edits = [edit for part in pod.defaulted_containers for edit in guaranteed_edits(part)]
    yield FieldViolation(path=f"{pod.prefix}spec", facts={"qos": str(pod.qos_class)}, edits=tuple(edits))


@lint_rule("NW102", Severity.WARNING, PodSubject)
def _unpinned_by_others(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A container that makes the pod Burstable instead of Guaranteed.

    Finding: {role} {container} has no requests equal to limits, so the pod is Burstable, while {others} would make
    it Guaranteed{pinned}

    A pod is Guaranteed only if every container, init containers and sidecars included, has limits on cpu and memory
    and requests that equal them. One helper without them makes the whole pod Burstable: it loses the exclusive CPUs
    and memory of the static policies of the CPU and memory managers, and its protection from eviction. No message
    shows it.

    Remedy: Give the container requests and limits, equal on cpu and memory. A fraction of a CPU is enough.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
           requests: {cpu: 2, memory: 1Gi}
           limits: {cpu: 2, memory: 1Gi}
       initContainers:
       - name: mesh
         image: example.com/mesh
         restartPolicy: Always
         resources:
           requests: {cpu: 100m, memory: 64Mi}
    -      limits: {memory: 64Mi}
    +      limits: {cpu: 100m, memory: 64Mi}
    ```
    """
    if pod.qos_class is not QOSClass.BURSTABLE or pod.pod.spec.resources is not None:
        return
    guaranteed = [
        part
        for part in pod.defaulted_containers
        if part.role != "init container" and _requests_equal_limits(part)
    ]
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


@lint_rule("NW103", Severity.INFO, PodSubject)
def _limits_alone(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Limits without requests.

    Finding: container {container} limits {resources} without a request: the limit becomes the request

    The API server fills in a missing request from the limit. A generous limit is then reserved in full on the node,
    and counts as `requests` in quotas. If that holds for all containers, the pod is Guaranteed, perhaps
    unintentionally.

    Remedy: Set the request: to the limit, if that is intended, or to what the container needs.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
    +      requests: {cpu: 500m, memory: 256Mi}
           limits: {cpu: 500m, memory: 256Mi}
    ```
    """
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


@lint_rule("NW104", Severity.WARNING, PodSubject, since="1.34")
def _empty_pod_level(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """An empty spec.resources hides the containers' requests.

    Finding: spec.resources is empty: the pod counts as BestEffort, while its containers make it {otherwise}

    The QoS class depends only on whether `spec.resources` is set. If it is set and empty, the pod is BestEffort
    whatever its containers request: the first to be evicted and killed, with an oom_score_adj of 1000. Everything
    else (scheduling, cgroups) still depends on the containers.

    Remedy: Omit `spec.resources`.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
    -  resources: {}
       containers:
       - name: app
         image: example.com/app
         resources:
           requests: {cpu: 500m, memory: 256Mi}
           limits: {cpu: 500m, memory: 256Mi}
    ```
    """
    level = pod.as_written.spec.resources
    if level is None or level.requests or level.limits:
        return
    without = with_defaults(replace(pod.as_written, spec=replace(pod.as_written.spec, resources=None)))
    otherwise = computed_qos_class(without)
    if otherwise is not QOSClass.BEST_EFFORT:
        path = f"{pod.prefix}spec.resources"
        yield FieldViolation(path=path, facts={"otherwise": str(otherwise)}, edits=(SuggestedEdit(path),))


@lint_rule("NW105", Severity.WARNING, PodSubject)
def _devices_alone(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Devices without cpu and memory.

    Finding: container {container} requests {devices} but neither cpu nor memory: the pod is BestEffort

    Extended resources do not count for the QoS class. A pod that requests only GPUs is BestEffort: it is the first
    to be preempted for a critical pod and to be evicted, and its processes are the first that the kernel kills,
    although it holds the most expensive device on the node.

    Remedy: Request cpu and memory, too.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: train
         image: example.com/train
         resources:
    -      limits: {nvidia.com/gpu: 1}
    +      requests: {cpu: 4, memory: 16Gi}
    +      limits: {nvidia.com/gpu: 1, memory: 16Gi}
    ```
    """
    if pod.qos_class is not QOSClass.BEST_EFFORT:
        return
    for part in pod.defaulted_containers:
        devices = [name for name in part.container.resources.requests if is_extended(name)]
        if devices:
            edits = tuple(_edit_without_value(f"{part.resources_path}.requests[{name}]") for name in COUNTED)
            facts = {"container": part.container.name, "devices": ", ".join(sorted(devices))}
            yield FieldViolation(path=part.resources_path, facts=facts, edits=edits)


@lint_rule("NW106", Severity.INFO, PodSubject, since="1.34")
def _pod_level_not_pinned(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pod-level resources prevent exclusive CPUs.

    Finding: the pod is Guaranteed with {cpus} at the pod level, but gets no exclusive CPUs

    The CPU and memory managers ignore pods with `spec.resources` while the gate `PodLevelResourceManagers` is off,
    as it is by default: no exclusive CPUs, no memory on chosen NUMA nodes, no hints to the topology manager. The
    class is Guaranteed all the same. With `--node`, the rule has a finding only if a node has such a policy without
    the gate.

    Remedy: Set requests and limits in the containers instead of the pod level if exclusive CPUs are needed;
    otherwise ignore the rule.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
    -  resources:
    -    requests: {cpu: 2, memory: 1Gi}
    -    limits: {cpu: 2, memory: 1Gi}
       containers:
       - name: app
         image: example.com/app
    +    resources:
    +      requests: {cpu: 2, memory: 1Gi}
    +      limits: {cpu: 2, memory: 1Gi}
    ```
    """
    if pod.qos_class is not QOSClass.GUARANTEED or not pod_level_resources_set(pod.pod):
        return
    if context.nodes and not any(node.ignores_pod_level for node in context.nodes):
        return
    level = pod.pod.spec.resources
    assert level is not None
    cpus = level.requests.get(CPU, ZERO)
    if cpus.milli_value() >= 1000 and not cpus.milli_value() % 1000:
        yield FieldViolation(path=f"{pod.prefix}spec.resources", facts={"cpus": counted(cpus.value(), "CPU")})


@lint_rule("NW107", Severity.WARNING, PodSubject)
def _zero_limits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A limit of zero.

    Finding: container {container} limits {resource} to 0, which is no limit

    For cgroups and for the QoS class a limit of zero is a missing limit: the container is not bounded, and the pod
    is not Guaranteed.

    Remedy: Omit the limit, or set the intended one.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
    -      requests: {cpu: 0, memory: 64Mi}
    -      limits: {cpu: 0, memory: 64Mi}
    +      requests: {cpu: 10m, memory: 64Mi}
    +      limits: {memory: 64Mi}
    ```
    """
    for part in pod.written_containers:
        for name, amount in part.container.resources.limits.items():
            if name in COUNTED and amount.is_zero():
                path = f"{part.resources_path}.limits[{name}]"
                facts = {"container": part.container.name, "resource": name}
                yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


@lint_rule("NW108", Severity.INFO, PodSubject)
def _zero_requests(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A request of zero beside a limit.

    Finding: container {container} requests no {resource} at all, although it may use {limit}

    Zero is a request: the limit does not replace it as it replaces a missing request. A CPU request of zero becomes
    2 shares, the minimum, so the container gets almost no CPU time on a busy node; a memory request of zero makes
    it an early victim of eviction. The pod is not Guaranteed.

    Remedy: Omit the request, so that the limit becomes the request; or request what the container needs.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
    -      requests: {cpu: 0, memory: 64Mi}
    +      requests: {cpu: 100m, memory: 64Mi}
           limits: {cpu: 500m, memory: 64Mi}
    ```
    """
    for part in pod.written_containers:
        resources = part.container.resources
        for name, amount in resources.requests.items():
            limit = resources.limits.get(name, ZERO)
            if name in COUNTED and amount.is_zero() and not limit.is_zero():
                path = f"{part.resources_path}.requests[{name}]"
                facts = {"container": part.container.name, "resource": name, "limit": str(limit)}
                yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


@lint_rule("NW109", Severity.INFO, PodSubject)
def _no_ceiling(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """One container without a memory limit leaves the pod unlimited.

    Finding: {role} {container} has no memory limit, so the pod's cgroup has none, whatever the limit of {others}

    The cgroup of a Burstable pod is limited only if every container, init containers included, has a limit.
    Otherwise nothing bounds the usage of the pod as a whole (temporary files in memory, page cache), and the
    containers with limits are killed first.

    Remedy: Limit the container's memory, too; or give the pod a limit (`spec.resources.limits`).

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
           requests: {cpu: 100m, memory: 64Mi}
           limits: {memory: 128Mi}
       - name: helper
         image: example.com/helper
         resources:
           requests: {cpu: 10m, memory: 16Mi}
    +      limits: {memory: 32Mi}
    ```
    """
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


@lint_rule("NW118", Severity.INFO, PodSubject)
def _without_requests(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A pod without any requests.

    Finding: no requests and no limits in {containers}: the pod is BestEffort; is that intended?

    A BestEffort pod counts as nothing for the scheduler, is the first that the OOM killer ends, and is among the
    first that memory pressure evicts: any memory that it uses is more than it requests. It gets the smallest share
    of CPU time. Few pods are meant to run so, and most are so because nobody decided.

    Remedy: Set requests of cpu and memory. If the pod is BestEffort by choice, write `resources: {}` in its
    containers: it has the same effect, and says so.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
    +    resources: {}
    ```
    """
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


@lint_rule("NW119", Severity.INFO, PodSubject)
def _without_memory_request(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A container without a memory request.

    Finding: container {container} requests cpu, but no memory: for the scheduler it uses none, and under memory
    pressure it ranks as exceeding its request

    Without a memory request the scheduler places the pod as if it used no memory, so nodes are filled beyond what
    they have. Under memory pressure the kubelet first evicts pods that use more than they request, which such a
    container always does.

    Remedy: Set a memory request of what the container uses.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
       - name: app
         image: example.com/app
         resources:
    -      requests: {cpu: 100m}
    +      requests: {cpu: 100m, memory: 64Mi}
    ```
    """
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


def _whole_cpus(part: SubjectContainer) -> int:
    """The exclusive CPUs that the container could get."""
    milli = part.container.resources.requests.get(CPU, ZERO).milli_value()
    return 0 if milli % 1000 else milli // 1000


def _has_limit(part: SubjectContainer, name: str) -> bool:
    return not part.container.resources.limits.get(name, ZERO).is_zero()
