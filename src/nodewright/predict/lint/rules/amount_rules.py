"""Rules about pods: misleading amounts, and limits with a wider effect than their container."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import SYSTEM_PRIORITY_CLASSES
from nodewright.engine.core.requests.effective_resources import container_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.core.requests.resource_breakdown import OS_LABEL
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_huge_page,
    is_in_bytes,
    resource_sort_key,
)
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LintContext,
    LintRule,
    PodSubject,
    Severity,
    SuggestedEdit,
)

SIDES = ("requests", "limits")
MIN_CPU_QUOTA_MILLI = 10
MIB = 1 << 20


def _tiny_cpu_limits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The kernel's smallest quota is 1 ms in each 100 ms."""
    for part in pod.written_containers:
        limit = part.container.resources.limits.get(CPU)
        if limit is not None and 0 < limit.milli_value() < MIN_CPU_QUOTA_MILLI:
            path = f"{part.resources_path}.limits[{CPU}]"
            facts = {"container": part.container.name, "limit": str(limit)}
            yield FieldViolation(
                path=path, facts=facts, edits=(SuggestedEdit(path, f"{MIN_CPU_QUOTA_MILLI}m"),)
            )


def _fractions_of_bytes(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Thousandths of bytes, usually meant as Mi; large ones are how Kubernetes itself prints `1.1Gi`."""
    for part in pod.written_containers:
        for side in SIDES:
            for name, amount in getattr(part.container.resources, side).items():
                if not is_in_bytes(name) or amount.value() >= MIB:
                    continue
                text = str(pod.written_value(f"{part.resources_path}.{side}", name)).strip()
                if not text.endswith(("m", "u", "n")):
                    continue
                path = f"{part.resources_path}.{side}[{name}]"
                facts = {"container": part.container.name, "side": side, "resource": name, "text": text}
                yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path, f"{text[:-1]}Mi"),))


def _no_digits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Amounts without digits, which Kubernetes parses as zero."""
    for part in pod.written_containers:
        for side in SIDES:
            for name, amount in getattr(part.container.resources, side).items():
                text = pod.written_value(f"{part.resources_path}.{side}", name) if amount.is_zero() else None
                if isinstance(text, str) and not any(letter.isdigit() for letter in text):
                    path = f"{part.resources_path}.{side}[{name}]"
                    facts = {"container": part.container.name, "side": side, "resource": name, "text": text}
                    yield FieldViolation(
                        path=path, facts=facts, edits=(SuggestedEdit(path, needs_value=True),)
                    )


def _shared_storage_limits(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """One limit on ephemeral storage bounds the usage of all containers together."""
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


def _init_beside_sidecars(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Init containers listed after sidecars, which then run beside them and add to their requests."""
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


def _os_label(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The kubelet compares the pod's label, not its node selector."""
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


def _inexact_memory(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Memory amounts of a static pod that the memory manager cannot represent."""
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


def _static_priority(pod: PodSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The priority class of a static pod is not resolved."""
    spec = pod.as_written.spec
    if pod.is_static and spec.priority_class_name and spec.priority is None:
        path = f"{pod.prefix}spec.priorityClassName"
        priority_class = SYSTEM_PRIORITY_CLASSES.get(spec.priority_class_name)
        value = priority_class.value if priority_class else None
        edit = SuggestedEdit(f"{pod.prefix}spec.priority", value, needs_value=value is None)
        yield FieldViolation(path=path, facts={"name": spec.priority_class_name}, edits=(edit,))


AMOUNT_RULES = (
    LintRule("NW110", Severity.WARNING, (PodSubject,), _fractions_of_bytes),
    LintRule("NW111", Severity.ERROR, (PodSubject,), _no_digits),
    LintRule("NW112", Severity.INFO, (PodSubject,), _tiny_cpu_limits),
    LintRule("NW113", Severity.WARNING, (PodSubject,), _shared_storage_limits),
    LintRule("NW114", Severity.INFO, (PodSubject,), _init_beside_sidecars),
    LintRule("NW115", Severity.WARNING, (PodSubject,), _os_label),
    LintRule("NW116", Severity.ERROR, (PodSubject,), _inexact_memory),
    LintRule("NW117", Severity.WARNING, (PodSubject,), _static_priority),
)
