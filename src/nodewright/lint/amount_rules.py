"""Rules about pods: amounts that do not mean what they look like, limits that reach further than they say."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodewright.core.arrival import SYSTEM_CLASSES
from nodewright.core.requests import QOSClass, container_requests
from nodewright.lint.findings import Edit, Found, Rule, Severity
from nodewright.lint.subjects import Around, PodSubject
from nodewright.model.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    in_order,
    is_huge_page,
    is_in_bytes,
)

OS_LABEL = "kubernetes.io/os"
SIDES = ("requests", "limits")
LEAST_CPU_MILLI = 10
MIB = 1 << 20


def _tiny_cpu_limits(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """The kernel's least quota is 1 ms of 100."""
    for part in pod.parts:
        limit = part.container.resources.limits.get(CPU)
        if limit is not None and 0 < limit.milli_value() < LEAST_CPU_MILLI:
            path = f"{part.resources}.limits[{CPU}]"
            facts = {"container": part.container.name, "limit": str(limit)}
            yield Found(path=path, facts=facts, edits=(Edit(path, f"{LEAST_CPU_MILLI}m"),))


def _parts_of_bytes(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Thousandths of bytes, mostly written for millions; large ones are what Kubernetes itself prints for `1.1Gi`."""
    for part in pod.parts:
        for side in SIDES:
            for name, amount in getattr(part.container.resources, side).items():
                if not is_in_bytes(name) or amount.value() >= MIB:
                    continue
                text = str(pod.text_at(f"{part.resources}.{side}", name)).strip()
                if not text.endswith(("m", "u", "n")):
                    continue
                path = f"{part.resources}.{side}[{name}]"
                facts = {"container": part.container.name, "side": side, "resource": name, "text": text}
                yield Found(path=path, facts=facts, edits=(Edit(path, f"{text[:-1]}Mi"),))


def _no_digits(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Amounts without a digit, which Kubernetes takes for zero."""
    for part in pod.parts:
        for side in SIDES:
            for name, amount in getattr(part.container.resources, side).items():
                text = pod.text_at(f"{part.resources}.{side}", name) if amount.is_zero() else None
                if isinstance(text, str) and not any(letter.isdigit() for letter in text):
                    path = f"{part.resources}.{side}[{name}]"
                    facts = {"container": part.container.name, "side": side, "resource": name, "text": text}
                    yield Found(path=path, facts=facts, edits=(Edit(path, is_open=True),))


def _storage_limit_for_all(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """One limit on ephemeral storage bounds what all containers use together."""
    limits = {
        part.container.name: limit
        for part in pod.complete_parts
        if part.role != "init container"
        and (limit := part.container.resources.limits.get(EPHEMERAL_STORAGE)) is not None
    }
    unlimited = [
        part
        for part in pod.complete_parts
        if part.role != "init container" and part.container.name not in limits
    ]
    if not limits or not unlimited:
        return
    for part in pod.complete_parts:
        if part.container.name in limits and part.role != "init container":
            facts = {
                "limit": " + ".join(map(str, limits.values())),
                "limited": ", ".join(limits),
                "others": ", ".join(one.container.name for one in unlimited),
            }
            edits = (Edit(f"{one.resources}.limits[{EPHEMERAL_STORAGE}]", is_open=True) for one in unlimited)
            path = f"{part.resources}.limits[{EPHEMERAL_STORAGE}]"
            yield Found(path=path, facts=facts, edits=tuple(edits))
            return


def _init_beside_sidecars(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Init containers behind sidecars, which then run beside them and are added to them."""
    spec = pod.pod.spec
    sidecars = [one for one in spec.init_containers if one.is_sidecar]
    ordinary = [one for one in spec.init_containers if not one.is_sidecar]
    if not sidecars or not ordinary or spec.resources is not None:
        return
    first = replace(pod.pod, spec=replace(spec, init_containers=(*ordinary, *sidecars)))
    now, then = container_requests(pod.pod), container_requests(first)
    less = [name for name in sorted(now, key=in_order) if then[name] < now[name]]
    if less:
        facts = {
            "now": ", ".join(f"{name} {now[name]}" for name in less),
            "then": ", ".join(f"{name} {then[name]}" for name in less),
        }
        yield Found(path=f"{pod.prefix}spec.initContainers", facts=facts)


def _os_label(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """The kubelet compares the pod's own label, not its node selector."""
    wanted = pod.written.metadata.labels.get(OS_LABEL)
    said = pod.written.spec.os.name if pod.written.spec.os else pod.written.spec.node_selector.get(OS_LABEL)
    if wanted is not None and wanted != (said or "linux"):
        path = f"{pod.prefix}metadata.labels[{OS_LABEL}]"
        facts = {"label": wanted, "wanted": said or "linux"}
        yield Found(path=path, facts=facts, edits=(Edit(path),))


def _inexact_memory(pod: PodSubject, around: Around) -> Iterator[Found]:
    """A static pod's memory as it is written, which the memory manager may not be able to read."""
    if not pod.is_static or pod.qos_class is not QOSClass.GUARANTEED:
        return
    if around.nodes and not any(node.places_memory for node in around.nodes):
        return
    for part in pod.complete_parts:
        for name, amount in part.container.resources.requests.items():
            if not (name == MEMORY or is_huge_page(name)) or amount.as_int64() is not None:
                continue
            texts = {side: pod.text_at(f"{part.resources}.{side}", name) for side in SIDES}
            sides = [side for side in SIDES if texts[side] is not None]
            edits = (Edit(f"{part.resources}.{side}[{name}]", amount.canonical()) for side in sides)
            facts = {"container": part.container.name, "resource": name, "text": texts[sides[0]]}
            yield Found(path=f"{part.resources}.{sides[0]}[{name}]", facts=facts, edits=tuple(edits))


def _static_priority(pod: PodSubject, _around: Around) -> Iterator[Found]:
    """Nobody looks up the priority class of a static pod."""
    spec = pod.written.spec
    if pod.is_static and spec.priority_class_name and spec.priority is None:
        path = f"{pod.prefix}spec.priorityClassName"
        value = found.value if (found := SYSTEM_CLASSES.get(spec.priority_class_name)) else None
        edit = Edit(f"{pod.prefix}spec.priority", value, is_open=value is None)
        yield Found(path=path, facts={"name": spec.priority_class_name}, edits=(edit,))


AMOUNT_RULES = (
    Rule("NW110", Severity.WARNING, (PodSubject,), _parts_of_bytes),
    Rule("NW111", Severity.ERROR, (PodSubject,), _no_digits),
    Rule("NW112", Severity.INFO, (PodSubject,), _tiny_cpu_limits),
    Rule("NW113", Severity.WARNING, (PodSubject,), _storage_limit_for_all),
    Rule("NW114", Severity.INFO, (PodSubject,), _init_beside_sidecars),
    Rule("NW115", Severity.WARNING, (PodSubject,), _os_label),
    Rule("NW116", Severity.ERROR, (PodSubject,), _inexact_memory),
    Rule("NW117", Severity.WARNING, (PodSubject,), _static_priority),
)
