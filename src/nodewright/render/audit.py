"""An audit as a table of what disagrees, with what it means and what to do; and as a document."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from nodewright.audit.values import (
    Audit,
    Blocks,
    Count,
    Finding,
    Gap,
    GapKind,
    Ids,
    Kind,
    Sizes,
    Source,
    Standing,
    Text,
    Value,
)
from nodewright.model.profile import MemoryBlock
from nodewright.render.amounts import amount_text
from nodewright.render.tables import table
from nodewright.values.idset import CPUSet, NUMASet

_HEADERS = {
    Source.STATE: "STATE FILES",
    Source.RESOURCES: "PODRESOURCES",
    Source.CGROUPS: "CGROUPS",
    Source.PODS: "PODS",
    Source.CONFIGURATION: "CONFIGURATION",
}
_NAMES = {
    Source.STATE: "state files",
    Source.RESOURCES: "PodResources",
    Source.CGROUPS: "cgroups",
    Source.PODS: "pods",
    Source.CONFIGURATION: "configuration",
}
_OPTIONS = {
    Source.STATE: "--kubelet-root",
    Source.RESOURCES: "--pod-resources",
    Source.CGROUPS: "--cgroups",
    Source.PODS: "--pods, --socket",
    Source.CONFIGURATION: "--kubelet-config",
}
_WRITER = (
    "find out who writes to it; nodewright's agent sets it back within 10 s, "
    "a kubelet only when the container is made anew"
)


def audit_text(audit: Audit) -> str:
    """What disagrees as a table, each with its meaning below; then how much was compared."""
    parts = []
    if audit.findings:
        parts += [_table(audit.findings), "".join(map(_explained, audit.findings))]
    if audit.passing:
        parts.append("taken back when the next pod comes:\n" + _table(audit.passing))
    count = len(audit.findings)
    what = f"{count} fact{'' if count == 1 else 's'} disagree{'s' if count == 1 else ''}"
    parts.append(f"{what} of {audit.compared} compared\n")
    return "\n".join(parts)


def gap_sentence(gap: Gap) -> str:
    """What was not compared, and why."""
    names = ", ".join(gap.names)
    source = _NAMES[gap.source] if gap.source else ""
    match gap.what:
        case GapKind.NOT_ASKED:
            assert gap.source is not None
            return f"not compared: {source}, as nobody says where they are ({_OPTIONS[gap.source]})"
        case GapKind.NOT_READ:
            return f"not compared: {source}: {gap.because}"
        case GapKind.NAMES_UNKNOWN:
            return "not compared: state files with PodResources: the ones know pods by uid, the others by name (--pods)"
        case GapKind.GROUP_UNTOLD:
            return f"not compared: cgroups of containers whose ids no status tells: {names}"
        case GapKind.FILES_LACKING:
            return f"not compared: files that this machine does not have: {names}"
        case GapKind.NO_OWN:
            return "not compared: who runs where: under these policies nobody has CPUs or memory for himself"
        case _:
            assert_never(gap.what)


def meaning(finding: Finding) -> str:
    """What it means that sources disagree."""
    match finding.kind:
        case Kind.CPUS | Kind.MEMORY | Kind.DEVICES:
            return _of_holding(finding)
        case Kind.TWICE:
            return "others have these for themselves, too: neither is alone on them"
        case Kind.POOL:
            return "the shared CPUs are not those that containers leave: some are lost, or belong to somebody twice"
        case Kind.ALLOCATABLE:
            return "who answers was started on another configuration, or on another machine"
        case Kind.HOLDER:
            return "it is held for a pod that is gone"
        case Kind.LISTED if finding.said.get(Source.RESOURCES) is Standing.THERE:
            return "the kubelet runs a pod that these pods do not have: it is new, or was deleted with force"
        case Kind.LISTED:
            return "the API takes the pod for running, and the kubelet does not have it"
        case Kind.GROUP if finding.said.get(Source.CGROUPS) is Standing.THERE:
            return "the cgroup of a pod that is gone is left, with what may still run in it"
        case Kind.GROUP:
            return "it is said to run and has no cgroup: nothing holds it to anything, or it has just ended"
        case Kind.FILE if not finding.pod:
            return "the group that bounds all these pods says something else than the configuration"
        case Kind.FILE:
            return "it is held to something else than was asked for"
        case _:
            assert_never(finding.kind)


def advice(finding: Finding) -> str:
    """What to do about it."""
    match finding.kind:
        case Kind.CPUS | Kind.MEMORY if finding.odd is Source.CGROUPS:
            return _WRITER
        case Kind.CPUS | Kind.MEMORY | Kind.DEVICES if finding.odd is Source.PODS:
            return "make the pod anew: what it holds was given for another spec, or under another policy"
        case Kind.CPUS | Kind.MEMORY | Kind.DEVICES:
            return "drain the node, and restart the kubelet without the state file before it takes pods again"
        case Kind.TWICE:
            return "make all but one of these pods anew"
        case Kind.POOL:
            return "drain the node and delete cpu_manager_state: the kubelet does not start on it again"
        case Kind.ALLOCATABLE:
            return "restart the kubelet, or name its configuration (--kubelet-config)"
        case Kind.HOLDER:
            return "nothing"
        case Kind.LISTED:
            return "look again with pods fetched anew; if it stays, restart the kubelet"
        case Kind.GROUP if finding.said.get(Source.CGROUPS) is Standing.THERE:
            return "look again; if it stays, end what runs in it and remove it: the kubelet does so as a rule"
        case Kind.GROUP:
            return "look again with pods fetched anew; if it stays, make the pod anew"
        case Kind.FILE if not finding.pod:
            return "look again in a minute; if it stays, restart the kubelet and find out who writes to it"
        case Kind.FILE:
            return _WRITER
        case _:
            assert_never(finding.kind)


def audit_document(audit: Audit) -> dict[str, Any]:
    """The same for programs."""
    return {
        "findings": list(map(_document, audit.findings)),
        "passing": list(map(_document, audit.passing)),
        "compared": audit.compared,
        "notCompared": [
            {"reason": str(one.what)}
            | ({"source": str(one.source)} if one.source else {})
            | ({"names": list(one.names)} if one.names else {})
            | ({"because": one.because} if one.because else {})
            for one in audit.gaps
        ],
    }


def _document(finding: Finding) -> dict[str, Any]:
    return {
        "kind": str(finding.kind),
        "pod": finding.pod,
        "container": finding.container,
        "field": finding.field,
        "said": {str(source): _plain(value) for source, value in finding.said.items()},
        **({"odd": str(finding.odd)} if finding.odd else {}),
        **({"cgroup": finding.path} if finding.path else {}),
        "means": meaning(finding),
        "do": advice(finding),
    }


def _plain(value: Value) -> Any:
    match value:
        case CPUSet() | NUMASet():
            return str(value)
        case Count(number=number):
            return number
        case Sizes(by_kind=sizes):
            return dict(sizes)
        case Blocks(blocks=blocks):
            return [{"type": one.type, "size": one.size, "numaNodes": list(one.numa_nodes)} for one in blocks]
        case Ids(ids=ids):
            return sorted(ids)
        case Text(text=text):
            return text
        case Standing():
            return str(value)
        case _:
            assert_never(value)


def _table(findings: Sequence[Finding]) -> str:
    sources = [one for one in Source if any(one in finding.said for finding in findings)]
    headers = ("POD", "CONTAINER", "FIELD", *(_HEADERS[one] for one in sources))
    return table(headers, (_row(one, sources) for one in findings))


def _row(finding: Finding, sources: Sequence[Source]) -> tuple[str, ...]:
    cells = (_shown(finding.said.get(one), finding.kind) for one in sources)
    return _who(finding), finding.container or "-", finding.field, *cells


def _who(finding: Finding) -> str:
    return finding.pod or finding.path or "(node)"


def _shown(value: Value | None, kind: Kind) -> str:
    match value:
        case None:
            return "-"
        case CPUSet():
            return str(value) or "shared"
        case NUMASet():
            return f"on {value}" if value else "anywhere"
        case Count(number=number) if kind is Kind.CPUS:
            return f"{number} of its own" if number else "shared"
        case Count(number=number):
            return str(number)
        case Sizes(by_kind=sizes):
            return _listed(sizes) or "none of its own"
        case Blocks(blocks=blocks):
            return ", ".join(map(_block, blocks)) or "none of its own"
        case Ids(ids=ids):
            return ",".join(sorted(ids)) or "none"
        case Text(text=text):
            return text or "(empty)"
        case Standing():
            return str(value)
        case _:
            assert_never(value)


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{amount_text(name, size)} {name}" for name, size in sorted(sizes.items()))


def _block(block: MemoryBlock) -> str:
    numa = ",".join(map(str, block.numa_nodes))
    return f"{amount_text(block.type, block.size)} {block.type} on {numa}"


def _explained(finding: Finding) -> str:
    who = ", ".join(filter(None, (_who(finding), finding.container, finding.field)))
    where = f"  cgroup: {finding.path}\n" if finding.path and finding.pod else ""
    return f"{who}: {meaning(finding)}\n  do: {advice(finding)}\n{where}"


def _of_holding(finding: Finding) -> str:
    match finding.odd:
        case Source.CGROUPS if finding.kind is Kind.CPUS:
            return "it runs on other CPUs than it was given"
        case Source.CGROUPS:
            return "its memory comes from other NUMA nodes than it was given"
        case Source.STATE:
            return "the next start of the kubelet would go by the file, and take this for true"
        case Source.RESOURCES:
            return "the kubelet takes something else for true than its file and the kernel do"
        case Source.PODS:
            return "it holds something else than its spec asks for"
        case Source.CONFIGURATION | None:
            return "nobody can tell who is right"
        case _:
            assert_never(finding.odd)
