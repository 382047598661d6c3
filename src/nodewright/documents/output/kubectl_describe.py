"""Nodes and pods as `kubectl describe` prints them, with their devices."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodewright.documents.output.kubectl_tables import (
    CPUS_ANNOTATION,
    DEVICES_ANNOTATION,
    NONE,
    NUMA_ANNOTATION,
    SOURCE_ANNOTATION,
    age,
    pod_source_text,
    roles_text,
)
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.requests.effective_resources import pod_limits, pod_requests
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Container, ContainerState, ContainerStatus, Pod
from nodewright.model.kubernetes.pod_spec_fields import EnvVar
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_extended,
    is_huge_page,
)
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

_INDENT = "  "
_OVER = ("Succeeded", "Failed")
_POD_HEADERS = (
    *("Namespace", "Name", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age"),
)
_SYSTEM = {
    "Machine ID": "machineID",
    "Kernel Version": "kernelVersion",
    "OS Image": "osImage",
    "Operating System": "operatingSystem",
    "Architecture": "architecture",
    "Container Runtime Version": "containerRuntimeVersion",
    "Kubelet Version": "kubeletVersion",
}
_ZERO = Quantity.of(0)


def describe_node_text(
    node: Mapping[str, Any],
    pods: Sequence[Pod],
    devices: Mapping[str, Sequence[Device]],
    events: Sequence[Mapping[str, Any]],
    now: Instant,
) -> str:
    """The description of a node; ``devices`` are the devices of its plugins by resource.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeNode, in its order.
    Departs: times are in UTC as in the API; conditions have no times, as a standalone agent does not record them;
        a section Devices, which kubectl does not have, precedes the events.
    """
    status = node["status"]
    active_pods = [pod for pod in pods if pod.status.phase not in _OVER]
    active_pods.sort(key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    allocatable = {name: Quantity.parse(text) for name, text in status["allocatable"].items()}
    info = [(name, status["nodeInfo"][key]) for name, key in _SYSTEM.items() if key in status["nodeInfo"]]
    parts = [
        aligned(_node_head(node)),
        "Conditions:\n" + _conditions(status["conditions"]),
        _listed("Addresses", ((address["type"], address["address"]) for address in status["addresses"])),
        _listed("Capacity", sorted(status["capacity"].items())),
        _listed("Allocatable", sorted(status["allocatable"].items())),
        _listed("System Info", info),
        printable_line(f"Non-terminated Pods:  ({len(active_pods)} in total)")
        + _pods(active_pods, allocatable, now),
        _allocated(active_pods, allocatable),
    ]
    if devices:
        parts.append("Devices:\n" + _devices(devices, active_pods))
    parts.append(events_section(events, now))
    return "".join(parts)


def _node_head(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    meta, spec = node["metadata"], node["spec"]
    yield "Name", meta["name"]
    yield "Roles", roles_text(meta)
    for name in ("labels", "annotations"):
        separator = "=" if name == "labels" else ": "
        pairs = (f"{key}{separator}{value}" for key, value in sorted((meta.get(name) or {}).items()))
        yield from named_values(name.capitalize(), pairs)
    yield "CreationTimestamp", meta["creationTimestamp"]
    yield from named_values("Taints", map(_taint, spec.get("taints") or ()))
    yield "Unschedulable", str(bool(spec.get("unschedulable"))).lower()


def _taint(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _listed(name: str, rows: Iterable[tuple[str, str]]) -> str:
    return printable_line(f"{name}:") + aligned(rows, indent=2)


def _conditions(conditions: Iterable[Mapping[str, str]]) -> str:
    rows = [
        (
            f"{_INDENT}{condition['type']}",
            condition["status"],
            condition["reason"],
            condition.get("message", ""),
        )
        for condition in conditions
    ]
    return _underlined((f"{_INDENT}Type", "Status", "Reason", "Message"), rows)


def _pods(pods: Iterable[Pod], allocatable: Mapping[str, Quantity], now: Instant) -> str:
    rows = []
    for pod in pods:
        requests, limits = pod_requests(pod), pod_limits(pod)
        shares = (
            _share(amounts.get(name, _ZERO), allocatable.get(name, _ZERO))
            for name in (CPU, MEMORY)
            for amounts in (requests, limits)
        )
        meta = pod.metadata
        rows.append((f"{_INDENT}{meta.namespace}", meta.name, *shares, age(meta.creation_timestamp, now)))
    first, *others = _POD_HEADERS
    return _underlined((f"{_INDENT}{first}", *others), rows)


def _allocated(pods: Sequence[Pod], allocatable: Mapping[str, Quantity]) -> str:
    """The pods' total requests and limits as shares of the allocatable amounts."""
    requests = _total(pod_requests(pod) for pod in pods)
    limits = _total(pod_limits(pod) for pod in pods)
    names = [CPU, MEMORY, EPHEMERAL_STORAGE, *sorted(filter(is_huge_page, allocatable))]
    rows = [
        (
            f"{_INDENT}{name}",
            *(
                _share(amounts.get(name, _ZERO), allocatable.get(name, _ZERO))
                for amounts in (requests, limits)
            ),
        )
        for name in names
    ]
    rows += [
        (f"{_INDENT}{name}", str(requests.get(name, _ZERO)), str(limits.get(name, _ZERO)))
        for name in sorted(filter(is_extended, allocatable))
    ]
    over = printable_line(f"{_INDENT}(Total limits may be over 100 percent, i.e., overcommitted.)")
    shown = _underlined((f"{_INDENT}Resource", "Requests", "Limits"), rows)
    return f"Allocated resources:\n{over}{shown}"


def _devices(devices: Mapping[str, Sequence[Device]], pods: Iterable[Pod]) -> str:
    """Each device with its NUMA nodes, health and pod."""
    holders = {
        (resource, device): pod.full_name
        for pod in pods
        for resource, ids in _allocated_devices(pod)
        for device in ids
    }
    rows = [
        (
            f"{_INDENT}{resource}",
            device.id,
            ",".join(map(str, device.numa_nodes)) if device.numa_nodes else "-",
            "Healthy" if device.healthy else "Unhealthy",
            holders.get((resource, device.id), NONE),
        )
        for resource, resource_devices in sorted(devices.items())
        for device in resource_devices
    ]
    return _underlined((f"{_INDENT}Resource", "Device", "NUMA", "Health", "Pod"), rows)


def _allocated_devices(pod: Pod) -> Iterator[tuple[str, Sequence[str]]]:
    for text in pod.metadata.annotations.get(DEVICES_ANNOTATION, "").split():
        resource, _, ids = text.partition("=")
        yield resource, ids.split(",")


def _total(lists: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _share(amount: Quantity, of: Quantity) -> str:
    """An amount with its percentage of another: `500m (25%)`."""
    whole = of.milli_value()
    return f"{amount} ({amount.milli_value() * 100 // whole if whole else 0}%)"


def _underlined(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_INDENT + "-" * len(headers[0].strip()), *("-" * len(header) for header in headers[1:])]
    return table(headers, [lines, *rows])


_DEFAULT_TEXTS = {"sizeLimit": "<unset>"}


def variable_text(variable: EnvVar) -> str:
    """The value of a variable, or its source.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeContainerEnvVars.
    Departs: values of fields are not looked up.
    """
    source = variable.value_from or {}
    for kind, words in (("configMapKeyRef", "of config map"), ("secretKeyRef", "in secret")):
        if source.get(kind) is not None:
            key, name = source[kind].get("key") or "", source[kind].get("name") or ""
            return f"<set to the key '{key}' {words} '{name}'>  Optional: {_go(source[kind].get('optional'))}"
    if source.get("fieldRef") is not None:
        return f"({source['fieldRef'].get('apiVersion') or 'v1'}:{source['fieldRef'].get('fieldPath') or ''})"
    if source.get("resourceFieldRef") is not None:
        return f"({source['resourceFieldRef'].get('resource') or ''})"
    if source.get("fileKeyRef") is not None:
        ref = source["fileKeyRef"]
        return f"<set to the key '{ref.get('key') or ''}' of file '{ref.get('path') or ''}'>"
    return variable.value


def mount_lines(container: Container) -> Iterator[str]:
    """The volume mounts of a container, sorted by path.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeContainerVolumes.
    """
    for mount in sorted(container.volume_mounts, key=lambda mount: str(mount.get("mountPath") or "")):
        flags = ["ro" if mount.get("readOnly") else "rw"]
        if mount.get("subPath"):
            flags.append(f'path="{mount["subPath"]}"')
        yield f"{mount.get('mountPath') or ''} from {mount.get('name') or ''} ({','.join(flags)})"


def volume_rows(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The type of a volume and the fields of its source.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeVolumes.
    """
    for kind, (words, rows) in _KINDS.items():
        source = volume.get(kind)
        if source is not None:
            yield "Type", words
            yield from rows(source)
            return
    yield "Type", "<unknown>"


def _fields(*names: str) -> Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]:
    """The rows of these fields of a source: their names as kubectl prints them, with the fields' own."""

    def rows(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name in names:
            shown, _, field = name.partition("=")
            value = source.get(field)
            yield shown, _go(value) if field == "optional" else str(value or _DEFAULT_TEXTS.get(field, ""))

    return rows


def _downward(source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(source.get("items") or ()):
        reference = item.get("fieldRef") or item.get("resourceFieldRef") or {}
        field = reference.get("fieldPath") or reference.get("resource") or ""
        yield "" if number else "Items", f"{field} -> {item.get('path') or ''}"


def _projected(volume_source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for source in volume_source.get("sources") or ():
        if source.get("secret") is not None:
            yield "SecretName", str(source["secret"].get("name") or "")
        elif source.get("configMap") is not None:
            yield "ConfigMapName", str(source["configMap"].get("name") or "")
            yield "Optional", _go(source["configMap"].get("optional"))
        elif source.get("downwardAPI") is not None:
            yield "DownwardAPI", "true"


def _go(value: object) -> str:
    return "true" if value else "false"


_KINDS = {
    "hostPath": ("HostPath (bare host directory volume)", _fields("Path=path", "HostPathType=type")),
    "emptyDir": (
        "EmptyDir (a temporary directory that shares a pod's lifetime)",
        _fields("Medium=medium", "SizeLimit=sizeLimit"),
    ),
    "secret": (
        "Secret (a volume populated by a Secret)",
        _fields("SecretName=secretName", "Optional=optional"),
    ),
    "configMap": ("ConfigMap (a volume populated by a ConfigMap)", _fields("Name=name", "Optional=optional")),
    "downwardAPI": ("DownwardAPI (a volume populated by information about the pod)", _downward),
    "projected": ("Projected (a volume that contains injected data from multiple sources)", _projected),
}


_AGENT_ANNOTATIONS = (CPUS_ANNOTATION, DEVICES_ANNOTATION, NUMA_ANNOTATION, SOURCE_ANNOTATION)


def describe_pod_text(
    pod: Pod, events: Sequence[Mapping[str, Any]], why: Mapping[str, Any], now: Instant
) -> str:
    """The description of a pod.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describePod, in its order.
    Departs: times are in UTC as in the API; the agent's own sections (Source, Why) precede the events.
    """
    status = pod.status
    statuses = {
        container_status.name: container_status
        for container_status in (*status.init_container_statuses, *status.container_statuses)
    }
    parts = [aligned(_pod_head(pod))]
    if pod.spec.init_containers:
        parts.append("Init Containers:\n" + _containers(pod.spec.init_containers, statuses))
    parts.append("Containers:\n" + _containers(pod.spec.containers, statuses))
    if status.conditions:
        rows = [(f"{_INDENT}{condition.type}", condition.status) for condition in status.conditions]
        parts.append("Conditions:\n" + table((f"{_INDENT}Type", "Status"), rows))
    if pod.spec.volumes:
        parts.append("Volumes:\n")
        for volume in pod.spec.volumes:
            parts.append(printable_line(f"{_INDENT}{volume.get('name') or NONE}:"))
            parts.append(aligned(volume_rows(volume), indent=4))
    else:
        parts.append(printable_line(f"Volumes:  {NONE}"))
    parts.append(aligned([("QoS Class", status.qos_class or NONE), ("Source", pod_source_text(pod))]))
    parts.append("Why:\n" + _indented(why.get("text", "")))
    parts.append(events_section(events, now))
    return "".join(parts)


def _pod_head(pod: Pod) -> Iterator[tuple[str, str]]:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    yield "Name", meta.name
    yield "Namespace", meta.namespace
    yield "Priority", str(spec.priority or 0)
    if spec.priority_class_name:
        yield "Priority Class Name", spec.priority_class_name
    yield "Node", f"{spec.node_name}/{status.host_ip}" if status.host_ip else spec.node_name or NONE
    yield "Start Time", status.start_time or NONE
    yield from named_values("Labels", (f"{key}={value}" for key, value in sorted(meta.labels.items())))
    notes = (
        f"{key}: {value}" for key, value in sorted(meta.annotations.items()) if key not in _AGENT_ANNOTATIONS
    )
    yield from named_values("Annotations", notes)
    if meta.deletion_timestamp is not None:
        yield "Status", f"Terminating (lasts until {meta.deletion_timestamp})"
    else:
        yield "Status", status.phase or "Pending"
    if status.reason:
        yield "Reason", status.reason
    if status.message:
        yield "Message", status.message
    yield "IP", status.pod_ip
    yield "IPs", "" if status.pod_ip else NONE
    if status.pod_ip:
        yield f"{_INDENT}IP", status.pod_ip


def named_values(name: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Rows with the name and the first value, then one row for each further value."""
    first, *rest = list(values) or [NONE]
    yield name, first
    for value in rest:
        yield "", value


def _containers(containers: Iterable[Container], statuses: Mapping[str, ContainerStatus]) -> str:
    return "".join(
        printable_line(f"{_INDENT}{container.name}:")
        + aligned(_container(container, statuses.get(container.name)), indent=4)
        + _mounts(container)
        for container in containers
    )


def _mounts(container: Container) -> str:
    lines = printable_lines(f"      {line}" for line in mount_lines(container))
    return f"    Mounts:\n{lines}" if lines else ""


def _container(container: Container, status: ContainerStatus | None) -> Iterator[tuple[str, str]]:
    if status is not None:
        yield "Container ID", status.container_id or NONE
    yield "Image", container.image or NONE
    if status is not None and status.image_id:
        yield "Image ID", status.image_id
    yield from _ports(container)
    if container.command:
        yield from named_values("Command", container.command)
    if container.args:
        yield from named_values("Args", container.args)
    if status is not None:
        yield from _state("State", status.state)
        if status.last_state.terminated is not None:
            yield from _state("Last State", status.last_state)
        yield "Ready", str(status.ready)
        yield "Restart Count", str(status.restart_count)
    for name, amounts in (("Limits", container.resources.limits), ("Requests", container.resources.requests)):
        if amounts:
            yield name, ""
            yield from ((f"{_INDENT}{resource}", str(amount)) for resource, amount in sorted(amounts.items()))
    for name, probe in (
        ("Liveness", container.liveness_probe),
        ("Readiness", container.readiness_probe),
        ("Startup", container.startup_probe),
    ):
        if probe:
            yield name, _probe(probe)
    yield "Environment", "" if container.env else NONE
    yield from ((f"{_INDENT}{variable.name}", variable_text(variable)) for variable in container.env)
    if not container.volume_mounts:
        yield "Mounts", NONE


def _ports(container: Container) -> Iterator[tuple[str, str]]:
    ports = container.ports
    kind = "Ports" if len(ports) > 1 else "Port"
    yield kind, ", ".join(f"{port.container_port}/{port.protocol or 'TCP'}" for port in ports) or NONE
    yield f"Host {kind}", ", ".join(f"{port.host_port}/{port.protocol or 'TCP'}" for port in ports) or NONE


def _state(name: str, state: ContainerState) -> Iterator[tuple[str, str]]:
    waiting, running, ended = state.waiting, state.running, state.terminated
    if running is not None:
        yield name, "Running"
        yield f"{_INDENT}Started", _moment(running.started_at)
    elif ended is not None:
        yield name, "Terminated"
        yield f"{_INDENT}Reason", ended.reason or NONE
        if ended.message:
            yield f"{_INDENT}Message", ended.message
        yield f"{_INDENT}Exit Code", str(ended.exit_code)
        yield f"{_INDENT}Started", _moment(ended.started_at)
        yield f"{_INDENT}Finished", _moment(ended.finished_at)
    else:
        yield name, "Waiting"
        if waiting is not None and waiting.reason:
            yield f"{_INDENT}Reason", waiting.reason
        if waiting is not None and waiting.message:
            yield f"{_INDENT}Message", waiting.message


def _probe(probe: Mapping[str, Any]) -> str:
    """The probe as kubectl prints it.

    Follows: v1.36, kubectl/pkg/describe/describe.go, DescribeProbe.
    """
    times = (
        f"delay={probe.get('initialDelaySeconds', 0)}s timeout={probe.get('timeoutSeconds', 1)}s "
        f"period={probe.get('periodSeconds', 10)}s #success={probe.get('successThreshold', 1)} "
        f"#failure={probe.get('failureThreshold', 3)}"
    )
    if "exec" in probe:
        return f"exec [{' '.join(probe['exec'].get('command', ()))}] {times}"
    if "httpGet" in probe:
        get = probe["httpGet"]
        scheme, host, port = get.get("scheme", "HTTP").lower(), get.get("host", ""), get.get("port", "")
        return f"http-get {scheme}://{host}:{port}/{str(get.get('path', '')).lstrip('/')} {times}"
    if "tcpSocket" in probe:
        return f"tcp-socket {probe['tcpSocket'].get('host', '')}:{probe['tcpSocket'].get('port', '')} {times}"
    if "grpc" in probe:
        return f"grpc <pod>:{probe['grpc'].get('port', '')} {probe['grpc'].get('service', '')} {times}"
    return f"unknown {times}"


def events_section(events: Sequence[Mapping[str, Any]], now: Instant) -> str:
    """The events, the last section of a description."""
    if not events:
        return printable_line(f"Events:  {NONE}")
    rows = []
    for event in events:
        last_seen = age(Instant.parse(event["lastTimestamp"]), now)
        if event["count"] > 1:
            since = age(Instant.parse(event["firstTimestamp"]), now)
            last_seen = f"{last_seen} (x{event['count']} over {since})"
        kind = f"{_INDENT}{event['type']}"
        rows.append(
            (kind, event["reason"], last_seen, event["source"]["component"], event["message"].strip())
        )
    rows.insert(0, (f"{_INDENT}----", "------", "----", "----", "-------"))
    return "Events:\n" + table((f"{_INDENT}Type", "Reason", "Age", "From", "Message"), rows)


def _moment(at: Instant | None) -> str:
    return NONE if at is None else str(at.whole_second)


def aligned(rows: Iterable[tuple[str, str]], indent: int = 0) -> str:
    """Names and values in two columns."""
    named = [(f"{name}:" if name else "", value) for name, value in rows]
    width = max((len(name) for name, _ in named), default=0) + 2
    return printable_lines(f"{' ' * indent}{name.ljust(width)}{value}".rstrip() for name, value in named)


def _indented(text: str) -> str:
    return printable_lines(f"{_INDENT}{line}".rstrip() for line in text.removesuffix("\n").split("\n"))
