"""A pod as `kubectl describe pod` tells of it, and why it is where it is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodewright.model.objects import Container, ContainerState, ContainerStatus, Pod
from nodewright.render.ages import age
from nodewright.render.describe_parts import mount_lines, variable_text, volume_rows
from nodewright.render.pod_rows import CPUS, DEVICES, NUMA, SOURCE, source_word
from nodewright.render.tables import table
from nodewright.values.instant import Instant

NONE = "<none>"
_OURS = (CPUS, DEVICES, NUMA, SOURCE)
_INDENT = "  "


def describe_text(pod: Pod, events: Sequence[Mapping[str, Any]], why: Mapping[str, Any], now: Instant) -> str:
    """All that there is to tell.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describePod, in its order.
    Departs: times are in UTC as in the API; what is the agent's own (Source, Why) stands before the events.
    """
    status = pod.status
    statuses = {one.name: one for one in (*status.init_container_statuses, *status.container_statuses)}
    parts = [aligned(_head(pod))]
    if pod.spec.init_containers:
        parts.append("Init Containers:\n" + _containers(pod.spec.init_containers, statuses))
    parts.append("Containers:\n" + _containers(pod.spec.containers, statuses))
    if status.conditions:
        rows = [(f"{_INDENT}{one.type}", one.status) for one in status.conditions]
        parts.append("Conditions:\n" + table((f"{_INDENT}Type", "Status"), rows))
    if pod.spec.volumes:
        parts.append("Volumes:\n")
        for volume in pod.spec.volumes:
            described = aligned(volume_rows(volume), indent=4)
            parts.append(f"{_INDENT}{volume.get('name') or NONE}:\n{described}")
    else:
        parts.append(f"Volumes:  {NONE}\n")
    parts.append(aligned([("QoS Class", status.qos_class or NONE), ("Source", source_word(pod))]))
    parts.append("Why:\n" + _indented(why.get("text", "")))
    parts.append(events_part(events, now))
    return "".join(parts)


def _head(pod: Pod) -> Iterator[tuple[str, str]]:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    yield "Name", meta.name
    yield "Namespace", meta.namespace
    yield "Priority", str(spec.priority or 0)
    if spec.priority_class_name:
        yield "Priority Class Name", spec.priority_class_name
    yield "Node", f"{spec.node_name}/{status.host_ip}" if status.host_ip else spec.node_name or NONE
    yield "Start Time", status.start_time or NONE
    yield from several("Labels", (f"{key}={value}" for key, value in sorted(meta.labels.items())))
    notes = (f"{key}: {value}" for key, value in sorted(meta.annotations.items()) if key not in _OURS)
    yield from several("Annotations", notes)
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


def several(name: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
    """A name and its values below one another."""
    first, *rest = list(values) or [NONE]
    yield name, first
    for each in rest:
        yield "", each


def _containers(containers: Iterable[Container], statuses: Mapping[str, ContainerStatus]) -> str:
    return "".join(
        f"{_INDENT}{one.name}:\n{aligned(_container(one, statuses.get(one.name)), indent=4)}{_mounts(one)}"
        for one in containers
    )


def _mounts(container: Container) -> str:
    lines = "".join(f"      {line}\n" for line in mount_lines(container))
    return f"    Mounts:\n{lines}" if lines else ""


def _container(container: Container, status: ContainerStatus | None) -> Iterator[tuple[str, str]]:
    if status is not None:
        yield "Container ID", status.container_id or NONE
    yield "Image", container.image or NONE
    if status is not None and status.image_id:
        yield "Image ID", status.image_id
    yield from _ports(container)
    if container.command:
        yield from several("Command", map(_quoted, container.command))
    if container.args:
        yield from several("Args", map(_quoted, container.args))
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
    yield from ((f"{_INDENT}{one.name}", variable_text(one)) for one in container.env)
    if not container.volume_mounts:
        yield "Mounts", NONE


def _ports(container: Container) -> Iterator[tuple[str, str]]:
    ports = container.ports
    yield (
        ("Ports" if len(ports) > 1 else "Port"),
        ", ".join(f"{one.container_port}/{one.protocol or 'TCP'}" for one in ports) or NONE,
    )
    yield (
        ("Host Ports" if len(ports) > 1 else "Host Port"),
        ", ".join(f"{one.host_port}/{one.protocol or 'TCP'}" for one in ports) or NONE,
    )


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
    """As kubectl words it.

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


def events_part(events: Sequence[Mapping[str, Any]], now: Instant) -> str:
    """What happened, the last part of what is described."""
    if not events:
        return f"Events:  {NONE}\n"
    rows = []
    for one in events:
        seen = age(Instant.parse(one["lastTimestamp"]), now)
        if one["count"] > 1:
            since = age(Instant.parse(one["firstTimestamp"]), now)
            seen = f"{seen} (x{one['count']} over {since})"
        kind = f"{_INDENT}{one['type']}"
        rows.append((kind, one["reason"], seen, one["source"]["component"], one["message"].strip()))
    rows.insert(0, (f"{_INDENT}----", "------", "----", "----", "-------"))
    return "Events:\n" + table((f"{_INDENT}Type", "Reason", "Age", "From", "Message"), rows)


def _moment(at: Instant | None) -> str:
    return NONE if at is None else str(at.whole_second)


def _quoted(word: str) -> str:
    """A word of a command, its line ends made visible."""
    return word.replace("\n", "\\n")


def aligned(rows: Iterable[tuple[str, str]], indent: int = 0) -> str:
    """Names and values in two columns."""
    named = [(f"{name}:" if name else "", value) for name, value in rows]
    width = max((len(name) for name, _ in named), default=0) + 2
    return "".join(f"{' ' * indent}{name.ljust(width)}{value}".rstrip() + "\n" for name, value in named)


def _indented(text: str) -> str:
    return "".join(f"{_INDENT}{line}".rstrip() + "\n" for line in text.splitlines())
