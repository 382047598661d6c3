"""Rules about pods: misleading amounts, and limits with a wider effect than their container."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import SYSTEM_PRIORITY_CLASSES
from nodewright.engine.core.requests.effective_resources import container_requests, pod_limits
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.core.requests.resource_breakdown import OS_LABEL
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_huge_page,
    is_in_bytes,
    readable_amount,
    resource_sort_key,
)
from nodewright.model.printable import counted
from nodewright.model.values.quantity import Quantity
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LintContext,
    PodSubject,
    Severity,
    SuggestedEdit,
    lint_rule,
)

SIDES = ("requests", "limits")
MIN_CPU_QUOTA_MILLI = 10
MIB = 1 << 20
MEDIUM_MEMORY, MEDIUM_HUGE_PAGES = "Memory", "HugePages"


@lint_rule("NW110", Severity.WARNING, PodSubject)
def _fractions_of_bytes(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Thousandths of a byte.

    Finding: container {container}: {side}.{resource} of {text} is in thousandths of a byte; did you mean Mi?

    The suffix `m` means thousandths for every resource. `400m` of memory is four tenths of a byte: as a limit it
    kills the container at its start (the kernel rounds it to a page), as a request it has no effect.

    Remedy: Write `Mi` (or `M`).

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
    -      requests: {cpu: 100m, memory: 400m}
    +      requests: {cpu: 100m, memory: 400Mi}
    ```
    """
    for path, amount, facts in _written_amounts(pod):
        text = str(facts["text"]).strip()
        # Large ones are how Kubernetes itself prints `1.1Gi`.
        if is_in_bytes(facts["resource"]) and amount.value() < MIB and text.endswith(("m", "u", "n")):
            edit = SuggestedEdit(path, f"{text[:-1]}Mi")
            yield FieldViolation(path=path, facts={**facts, "text": text}, edits=(edit,))


def _written_amounts(pod: PodSubject) -> Iterator[tuple[str, Quantity, dict[str, Any]]]:
    """The requests and limits as written: their paths, amounts and facts."""
    for part in pod.written_containers:
        for side in SIDES:
            for name, amount in getattr(part.container.resources, side).items():
                text = pod.written_value(f"{part.resources_path}.{side}", name)
                facts = {"container": part.container.name, "side": side, "resource": name, "text": text}
                yield f"{part.resources_path}.{side}[{name}]", amount, facts


@lint_rule("NW121", Severity.WARNING, PodSubject)
def _unlikely_units(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """An amount whose unit is probably not what was meant.

    Finding: container {container}: {side}.{resource} of {text} is {meaning}; did you mean {meant}?

    Without a suffix, CPUs are whole CPUs and memory is bytes. `cpu: 100` beside little memory, `cpu: 500Mi` or
    `memory: 256` are typing errors nearly always: no node has the CPUs, and no process runs in 256 bytes.

    Remedy: Write `100m`, `500m` or `256Mi`.

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
    -      requests: {cpu: 100, memory: 256Mi}
    +      requests: {cpu: 100m, memory: 256Mi}
    ```
    """
    for part in pod.written_containers:
        for side in SIDES:
            amounts = getattr(part.container.resources, side)
            for name, amount in amounts.items():
                path = f"{part.resources_path}.{side}[{name}]"
                text = str(pod.written_value(f"{part.resources_path}.{side}", name)).strip()
                if name == CPU:
                    doubt = _unlikely_cpus(text, amount, amounts.get(MEMORY))
                elif name in (MEMORY, EPHEMERAL_STORAGE):
                    doubt = _unlikely_bytes(text, amount)
                else:
                    doubt = None
                if doubt is not None:
                    facts = {"container": part.container.name, "side": side, "resource": name, "text": text}
                    facts |= {"meaning": doubt[0], "meant": doubt[1]}
                    yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path, doubt[1]),))


_MANY_CPUS, _MOST_CPUS = 10, 1_000
_LEAST_MEMORY_BY_CPU = 64 * MIB


def _unlikely_cpus(text: str, amount: Quantity, memory: Quantity | None) -> tuple[str, str] | None:
    """What an amount of CPUs means, and what was meant; None: it is likely."""
    cpus = amount.value()
    if text.rstrip("kMGTPEKi") != text:
        return counted(cpus, "CPU"), f"{text.rstrip('kMGTPEKi')}m"
    is_alone = memory is not None and memory.value() < cpus * _LEAST_MEMORY_BY_CPU
    if not text.isdecimal() or cpus < _MANY_CPUS or not (is_alone or cpus >= _MOST_CPUS):
        return None
    beside = (
        f" beside {readable_amount(MEMORY, memory.value())} of memory"
        if memory is not None and is_alone
        else ""
    )
    return f"{counted(cpus, 'CPU')}{beside}", f"{text}m"


def _unlikely_bytes(text: str, amount: Quantity) -> tuple[str, str] | None:
    """What an amount of bytes means, and what was meant; None: it is likely."""
    is_unlikely = text.isdecimal() and 0 < amount.value() < MIB
    return (f"{amount.value():,} bytes", f"{text}Mi") if is_unlikely else None


@lint_rule("NW111", Severity.ERROR, PodSubject)
def _no_digits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """An amount without digits.

    Finding: container {container}: {side}.{resource} is {text}, which Kubernetes reads as zero

    The API server's parser takes `Ki`, `m`, `E`, `.`, `+` and `-` for amounts of zero. Usually a template omitted
    the number.

    Remedy: Write the number.

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
    -      requests: {cpu: 100m, memory: Ki}
    +      requests: {cpu: 100m, memory: 64Ki}
    ```
    """
    for path, amount, facts in _written_amounts(pod):
        text = facts["text"]
        if amount.is_zero() and isinstance(text, str) and not any(letter.isdigit() for letter in text):
            yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path, needs_value=True),))


@lint_rule("NW112", Severity.INFO, PodSubject)
def _tiny_cpu_limits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A CPU limit below the smallest CFS quota.

    Finding: container {container} is limited to {limit} of a CPU, but gets up to 10m

    The smallest quota is 1 ms in each 100 ms, a hundredth of a CPU. The kubelet raises smaller limits to that; the
    API still shows, and quotas still count, the written value.

    Remedy: Write 10m, the effective limit.

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
           requests: {cpu: 1m, memory: 16Mi}
    -      limits: {cpu: 5m, memory: 16Mi}
    +      limits: {cpu: 10m, memory: 16Mi}
    ```
    """
    for part in pod.written_containers:
        limit = part.container.resources.limits.get(CPU)
        if limit is not None and 0 < limit.milli_value() < MIN_CPU_QUOTA_MILLI:
            path = f"{part.resources_path}.limits[{CPU}]"
            facts = {"container": part.container.name, "limit": str(limit)}
            yield FieldViolation(
                path=path, facts=facts, edits=(SuggestedEdit(path, f"{MIN_CPU_QUOTA_MILLI}m"),)
            )


@lint_rule("NW113", Severity.WARNING, PodSubject)
def _shared_storage_limits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """One limit on ephemeral storage bounds all containers.

    Finding: the limits on ephemeral-storage ({limit} of {limited}) bound the pod as a whole, {others} included

    The kubelet adds up the existing limits on ephemeral storage and compares the sum with the usage of the whole
    pod: logs and layers of all containers and its emptyDir volumes. A container without a limit is thus bounded by
    those of the others, and its writes can get the pod evicted.

    Remedy: Limit the other containers as well, so that the sum includes them.

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
           requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 100Mi}
           limits: {memory: 64Mi, ephemeral-storage: 200Mi}
       - name: logs
         image: example.com/logs
         resources:
    -      requests: {cpu: 100m, memory: 64Mi}
    -      limits: {memory: 64Mi}
    +      requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 1Gi}
    +      limits: {memory: 64Mi, ephemeral-storage: 2Gi}
    ```
    """
    limits = {
        part.container.name: limit
        for part in pod.defaulted_containers
        if part.role != "init container"
        and (limit := part.container.resources.limits.get(EPHEMERAL_STORAGE)) is not None
    }
    unlimited = [
        part
        for part in pod.defaulted_containers
        if part.role != "init container" and part.container.name not in limits
    ]
    if not limits or not unlimited:
        return
    for part in pod.defaulted_containers:
        if part.container.name in limits and part.role != "init container":
            facts = {
                "limit": " + ".join(map(str, limits.values())),
                "limited": ", ".join(limits),
                "others": ", ".join(other.container.name for other in unlimited),
            }
            edits = (
                SuggestedEdit(f"{other.resources_path}.limits[{EPHEMERAL_STORAGE}]", needs_value=True)
                for other in unlimited
            )
            path = f"{part.resources_path}.limits[{EPHEMERAL_STORAGE}]"
            yield FieldViolation(path=path, facts=facts, edits=tuple(edits))
            return


@lint_rule("NW120", Severity.WARNING, PodSubject)
def _size_above_limit(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """An emptyDir that may grow beyond a limit.

    Finding: emptyDir {volume} may hold {size}, but the {resource} limit of {holder} is {limit}: {outcome}

    Files of an emptyDir in memory count as memory of the container that writes them, and pages of one of huge pages
    as its huge pages; on disk they count as ephemeral storage of the pod. Where the limit is below `sizeLimit`, it is
    reached first.

    Remedy: Set a `sizeLimit` within the limit, or a higher limit; the processes need memory as well.

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
           requests: {cpu: 100m, memory: 256Mi}
           limits: {memory: 256Mi}
         volumeMounts:
         - name: cache
           mountPath: /cache
       volumes:
       - name: cache
         emptyDir:
           medium: Memory
    -      sizeLimit: 1Gi
    +      sizeLimit: 128Mi
    ```
    """
    for index, volume in enumerate(pod.pod.spec.volumes):
        written = volume.get("emptyDir") or {}
        size, medium = (
            Quantity.parse(str(written.get("sizeLimit") or "0").strip()),
            written.get("medium") or "",
        )
        bound = min(
            _size_bounds(pod, str(volume.get("name")), medium), key=lambda bound: bound[2], default=None
        )
        if bound is None or size <= bound[2]:
            continue
        holder, resource, limit = bound
        outcomes = {
            MEMORY: "the container is killed when it is reached",
            EPHEMERAL_STORAGE: "the pod is evicted when it is reached",
        }
        yield FieldViolation(
            path=f"{pod.prefix}spec.volumes[{index}].emptyDir.sizeLimit",
            facts={
                "volume": str(volume.get("name")),
                "size": str(size),
                "resource": resource,
                "holder": holder,
                "limit": str(limit),
                "outcome": outcomes.get(resource, "no more pages can be used"),
            },
        )


def _size_bounds(pod: PodSubject, volume: str, medium: str) -> Iterator[tuple[str, str, Quantity]]:
    """The limits that bound a volume: what has the limit, the resource and the amount."""
    if not medium:
        total = pod_limits(pod.pod).get(EPHEMERAL_STORAGE)
        if total is not None and not total.is_zero():
            yield "the pod", EPHEMERAL_STORAGE, total
        return
    of_pod = pod.pod.spec.resources.limits if pod.pod.spec.resources is not None else {}
    for part in pod.defaulted_containers:
        mounts = part.container.volume_mounts
        if any(mount.get("name") == volume and not mount.get("readOnly") for mount in mounts):
            own = part.container.resources.limits
            for name, limit in {**of_pod, **own}.items():
                is_of_medium = name == MEMORY if medium == MEDIUM_MEMORY else is_huge_page(name)
                if is_of_medium and medium in (MEDIUM_MEMORY, MEDIUM_HUGE_PAGES, f"HugePages-{name[10:]}"):
                    holder = f"container {part.container.name}" if name in own else "the pod"
                    yield holder, name, limit


@lint_rule("NW114", Severity.INFO, PodSubject)
def _init_beside_sidecars(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """An init container that runs beside a sidecar.

    Finding: the pod requests {now}; {then} would suffice if the init containers ran before the sidecars

    Sidecars listed before an ordinary init container run beside it, so the requests of both are added. Sidecars
    listed after it have not started yet. Where the init container is large and does not need the sidecar, the order
    alone increases the pod's request.

    Remedy: Put init containers that do not need the sidecars before them.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       initContainers:
    +  - name: migrate
    +    image: example.com/migrate
    +    resources:
    +      requests: {cpu: 1, memory: 2Gi}
       - name: mesh
         image: example.com/mesh
         restartPolicy: Always
         resources:
           requests: {cpu: 100m, memory: 128Mi}
    -  - name: migrate
    -    image: example.com/migrate
    -    resources:
    -      requests: {cpu: 1, memory: 2Gi}
       containers:
       - name: app
         image: example.com/app
         resources:
           requests: {cpu: 200m, memory: 256Mi}
    ```
    """
    spec = pod.pod.spec
    sidecars = [container for container in spec.init_containers if container.is_sidecar]
    ordinary = [container for container in spec.init_containers if not container.is_sidecar]
    if not sidecars or not ordinary or spec.resources is not None:
        return
    first = replace(pod.pod, spec=replace(spec, init_containers=(*ordinary, *sidecars)))
    now, then = container_requests(pod.pod), container_requests(first)
    lower_names = [name for name in sorted(now, key=resource_sort_key) if then[name] < now[name]]
    if lower_names:
        facts = {
            "now": ", ".join(f"{name} {now[name]}" for name in lower_names),
            "then": ", ".join(f"{name} {then[name]}" for name in lower_names),
        }
        yield FieldViolation(path=f"{pod.prefix}spec.initContainers", facts=facts)


@lint_rule("NW115", Severity.WARNING, PodSubject)
def _os_label(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The pod's operating system label differs.

    Finding: the pod is labelled kubernetes.io/os={label}, but is meant for {wanted}

    When it admits a pod, the kubelet compares the node's operating system with the **label** `kubernetes.io/os` of
    the pod, not with its node selector. A pod with another label is rejected (`PodOSSelectorNodeLabelDoesNotMatch`)
    on every node.

    Remedy: Remove the label; use `spec.os.name` and a node selector instead.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
    -  labels: {kubernetes.io/os: windows}
     spec:
       nodeSelector: {kubernetes.io/os: linux}
       containers:
       - name: app
         image: example.com/app
         resources: {}
    ```
    """
    label = pod.as_written.metadata.labels.get(OS_LABEL)
    pod_os = (
        pod.as_written.spec.os.name
        if pod.as_written.spec.os
        else pod.as_written.spec.node_selector.get(OS_LABEL)
    )
    if label is not None and label != (pod_os or "linux"):
        path = f"{pod.prefix}metadata.labels[{OS_LABEL}]"
        facts = {"label": label, "wanted": pod_os or "linux"}
        yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


@lint_rule("NW116", Severity.ERROR, PodSubject)
def _inexact_memory(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A memory amount of a static pod that the memory manager rejects.

    Finding: container {container}: {resource} of {text} is refused by the memory manager: failed to represent
    quantity as int64

    The static memory policy requires amounts that the kubelet stores as a 64-bit number. `1.5Gi`, `100Ti` and
    `1000.0` are stored differently and refused. The API server converts them to their canonical form (`1536Mi`); a
    static pod is read from its file unchanged. Pods count as static if they have the annotation
    `kubernetes.io/config.source`, or are in a `staticPodPath` or in `/etc/kubernetes/manifests`.

    Remedy: Write the amount as a whole number of the next smaller unit.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
       annotations: {kubernetes.io/config.source: file}
     spec:
       priority: 2000001000
       containers:
       - name: app
         image: example.com/app
         resources:
    -      requests: {cpu: 1, memory: 1.5Gi}
    -      limits: {cpu: 1, memory: 1.5Gi}
    +      requests: {cpu: 1, memory: 1536Mi}
    +      limits: {cpu: 1, memory: 1536Mi}
    ```
    """
    if not pod.is_static or pod.qos_class is not QOSClass.GUARANTEED:
        return
    if context.nodes and not any(node.pins_memory for node in context.nodes):
        return
    for part in pod.defaulted_containers:
        for name, amount in part.container.resources.requests.items():
            if not (name == MEMORY or is_huge_page(name)) or amount.as_int64() is not None:
                continue
            texts = {side: pod.written_value(f"{part.resources_path}.{side}", name) for side in SIDES}
            sides = [side for side in SIDES if texts[side] is not None]
            edits = (
                SuggestedEdit(f"{part.resources_path}.{side}[{name}]", amount.canonical()) for side in sides
            )
            facts = {"container": part.container.name, "resource": name, "text": texts[sides[0]]}
            yield FieldViolation(
                path=f"{part.resources_path}.{sides[0]}[{name}]", facts=facts, edits=tuple(edits)
            )


@lint_rule("NW117", Severity.WARNING, PodSubject)
def _static_priority(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A static pod with a priority class name but no priority.

    Finding: the priority class {name} of a static pod is not resolved: the pod has no priority

    The API server resolves the name of a priority class to a number, and it does not see a static pod before the
    kubelet has started it. Without `priority` the pod has no priority in the kubelet: it cannot preempt critical
    pods, and its priority cannot be compared with that of other pods.

    Remedy: Set `priority` in addition to the name, as kubeadm does.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: etcd
       annotations: {kubernetes.io/config.source: file}
     spec:
       priorityClassName: system-node-critical
    +  priority: 2000001000
       containers:
       - name: etcd
         image: example.com/etcd
         resources: {}
    ```
    """
    spec = pod.as_written.spec
    if pod.is_static and spec.priority_class_name and spec.priority is None:
        path = f"{pod.prefix}spec.priorityClassName"
        priority_class = SYSTEM_PRIORITY_CLASSES.get(spec.priority_class_name)
        value = priority_class.value if priority_class else None
        edit = SuggestedEdit(f"{pod.prefix}spec.priority", value, needs_value=value is None)
        yield FieldViolation(path=path, facts={"name": spec.priority_class_name}, edits=(edit,))
