"""Fleets in words: why a pod stands where it does, what it holds, how much of something is used."""

from typing import assert_never

from nodewright.model.reasons import Reason
from nodewright.node.placement import Placement
from nodewright.render.amounts import readable, told_apart
from nodewright.render.messages import message
from nodewright.sim.fleet.hopeless import Hopeless
from nodewright.sim.fleet.values import Fate, Lack, PodRecord
from nodewright.values.idset import NUMASet


def seconds(amount: float) -> str:
    """A span of virtual time, as people say it.

    >>> seconds(0), seconds(12.34), seconds(3661), seconds(12_537_496)
    ('0s', '12.3s', '1h1m1s', '145d2h')
    """
    if amount < 60:
        return f"{amount:.1f}".removesuffix(".0") + "s"
    whole = round(amount)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    parts = ((days, "d"), (hours, "h")) if days else ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number)


def per_cent(part: float, whole: float) -> str:
    """A share; nothing of nothing is shown as a dash.

    >>> per_cent(1, 3), per_cent(0, 0)
    ('33 %', '-')
    """
    return f"{100 * part / whole:.0f} %" if whole else "-"


def short_name(resource: str) -> str:
    """A resource's name without its domain."""
    return resource.rpartition("/")[2]


def hopeless_text(found: Hopeless) -> str:
    """Why no node can ever hold a pod, with the place where it is described."""
    where = f" ({found.pod.place})" if found.pod.place else ""
    head = f"{found.pod.full_name}{where}: no node can ever hold it: "
    if found.resource:
        asked, most = told_apart(found.resource, found.asked, found.most)
        return f"{head}{found.resource}: {asked} asked for, {most} is the most that a node has"
    if found.suiting:
        return f"{head}none of the {found.suiting} that suit it has enough of everything"
    return f"{head}none suits it by its labels and taints"


def lack_text(lack: Lack) -> str:
    """Why nodes were passed over, by the scheduler's plugin."""
    what = f" ({lack.what})" if lack.what else ""
    return f"{lack.filter}{what}: {lack.nodes} {'node' if lack.nodes == 1 else 'nodes'}"


def reason_text(reason: Reason) -> str:
    """What the kubelet would say."""
    said = message(reason)
    return f"{said.reason}: {said.message}" if said.message else said.reason


def why_text(record: PodRecord) -> str:
    """Why the pod stands where it does; empty for one that runs or has run."""
    match record.fate:
        case Fate.RUNNING | Fate.ENDED | Fate.NOT_YET:
            return ""
        case Fate.WAITING:
            return "; ".join(map(lack_text, record.lacks))
        case Fate.LOOPING | Fate.REFUSED:
            return reason_text(record.because[0]) if record.because else ""
        case Fate.PREEMPTED:
            return "made way for a pod of higher priority"
        case Fate.EVICTED:
            return "its node ran short"
        case _:
            assert_never(record.fate)


def cpus_text(placement: Placement) -> str:
    """The CPUs that are a pod's alone; empty: it runs in the shared pool."""
    parts = [placement.cpus] if placement.cpus else [one.cpus for one in placement.containers if one.cpus]
    return " ".join(map(str, parts))


def numa_text(placement: Placement) -> str:
    """The NUMA nodes that the topology manager chose for a pod's containers; empty: it was not asked, or has no wish."""
    found = NUMASet()
    for one in placement.containers:
        if one.hint is not None and one.hint.numa is not None:
            found |= one.hint.numa
    return str(found)


def devices_text(placement: Placement) -> str:
    """The devices that are a pod's alone."""
    return " ".join(
        device for one in placement.containers for _, held in sorted(one.devices.items()) for device in held
    )


def used_text(resource: str, part: float, whole: int) -> str:
    """How much of a resource, and what share that is."""
    return f"{readable(resource, round(part))} of {readable(resource, whole)} ({per_cent(part, whole)})"
