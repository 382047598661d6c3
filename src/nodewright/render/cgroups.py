"""The groups of a node with their files: as text, as names, as a document; and where a tree says something else."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from nodewright.core.cgroups.compare import Comparison, Difference
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.plan import Group, Level
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.node.config import NodeConfig
from nodewright.render.cgroup_sentences import difference_reason, missing_sentence, why
from nodewright.render.documents import fact_document
from nodewright.render.messages import Message
from nodewright.render.policies import policies_document
from nodewright.render.request_sentences import score_sentence
from nodewright.render.tables import table


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A pod that the node does not take, and what its kubelet says."""

    pod: Pod
    kubelet: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupReport:
    """What there is to show."""

    groups: tuple[Group, ...]
    rules: CgroupRules
    config: NodeConfig
    refusals: tuple[Refusal, ...] = ()
    comparison: Comparison | None = None
    """With a tree; None: there was none to compare with."""
    warnings: tuple[str, ...] = ()
    skipped: Mapping[str, int]


def cgroups_text(report: CgroupReport) -> str:
    """Each group with its path, below it its files with their values and where these come from; or what differs."""
    if report.comparison is None:
        parts = [group_text(group) for group in report.groups]
    else:
        parts = _difference_texts(report.comparison, report.rules.version)
    parts += [
        f"pod {one.pod.full_name} is not taken by the node and has no cgroups: {one.kubelet.reason}\n"
        for one in report.refusals
    ]
    return "\n".join(parts)


def cgroup_names(report: CgroupReport) -> str:
    """A line a file: `path/file = value`, or the path alone of what differs; version 1 begins with the controller."""
    version = report.rules.version
    if report.comparison is not None:
        return "".join(
            f"{_file_path(one.path, one.file, version)}\n" for one in report.comparison.differences
        )
    return "".join(
        f"{_file_path(group.path, file.name, version)} = {file.value}\n"
        for group in report.groups
        for file in group.files
    )


def cgroups_document(report: CgroupReport) -> dict[str, Any]:
    """All of it as one document.

    Units: in `because` cpu in thousandths, memory in bytes, CPU time in microseconds.
    """
    config, rules = report.config, report.rules
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "CgroupReport",
        "node": config.facts.name,
        "kubernetesVersion": config.release.release.text,
        "rulesOf": config.release.rules_of,
        **policies_document(config),
        "cgroupVersion": rules.version,
        "cgroupDriver": rules.driver,
        "groups": [group_document(group, rules.version) for group in report.groups],
        "refused": [_refused_document(one) for one in report.refusals],
    }
    comparison = report.comparison
    if comparison is not None:
        document["agreeing"] = comparison.agreeing
        document["differences"] = [_difference_document(one, rules.version) for one in comparison.differences]
        document["notCompared"] = [
            {"pod": group.pod, "container": group.container} for group in comparison.not_compared
        ]
    return {**document, "skipped": dict(report.skipped), "warnings": list(report.warnings)}


# ---------------------------------------------------------------- groups


def group_text(group: Group) -> str:
    """A group with its path, below it its files with their values and where these come from."""
    lines = [f"{_title(group)}\n", f"  {group.path}\n"]
    rows = [(f"  {file.name}", file.value, why(file)) for file in _shown(group.files)]
    if group.oom_score is not None:
        rows.append(("  oom_score_adj", str(group.oom_score.adj), score_sentence(group.oom_score)))
    lines.append(table(("  FILE", "VALUE", "BECAUSE"), rows))
    lines += [f"  {missing_sentence(fact)}\n" for fact in group.missing]
    return "".join(lines)


def _shown(files: Iterable[File]) -> list[File]:
    """The files without those that say the same again for huge pages that are set aside."""
    return [file for file in files if ".rsvd." not in file.name]


def _title(group: Group) -> str:
    match group.level:
        case Level.DAEMONS:
            return "daemons"
        case Level.NODE:
            return "all pods"
        case Level.CLASS:
            return f"{group.qos_class} pods"
        case Level.POD:
            return f"pod {group.pod} ({group.qos_class})"
        case Level.CONTAINER:
            return f"container {group.container} of {group.pod}"
        case _:
            assert_never(group.level)


def _file_path(path: str, file: str, version: int) -> str:
    if not file:
        return path
    return f"/{file.partition('.')[0]}{path}/{file}" if version == 1 else f"{path}/{file}"


def _sides(difference: Difference) -> tuple[str, str]:
    if difference.file:
        return difference.expected, "-" if difference.found is None else difference.found or '""'
    return ("there", "-") if difference.found is None else ("-", "there")


def _difference_texts(comparison: Comparison, version: int) -> list[str]:
    parts = []
    if comparison.differences:
        rows = [
            (_file_path(one.path, one.file, version), *_sides(one), difference_reason(one))
            for one in comparison.differences
        ]
        parts.append(table(("FILE", "SHOULD BE", "IS", "BECAUSE"), rows))
    parts += [
        f"{_title(group)} is not compared: which group is its is not known\n"
        for group in comparison.not_compared
    ]
    parts.append(f"differing: {len(comparison.differences)}, as they should be: {comparison.agreeing}\n")
    return parts


# ---------------------------------------------------------------- documents


def group_document(group: Group, version: int) -> dict[str, Any]:
    """A group with its files; ``version`` is that of the tree."""
    document: dict[str, Any] = {"level": group.level.value, "path": group.path}
    named = {
        "qosClass": group.qos_class,
        "pod": group.pod,
        "container": group.container,
        "containerID": group.container_id,
    }
    document |= {key: str(value) for key, value in named.items() if value}
    document["files"] = [
        {
            "path": _file_path(group.path, file.name, version),
            "file": file.name,
            "value": file.value,
            "why": why(file),
            "because": fact_document(file.because),
        }
        for file in group.files
    ]
    if group.level is Level.POD:
        document["notSet"] = [
            {"why": missing_sentence(fact), "because": fact_document(fact)} for fact in group.missing
        ]
    if group.oom_score is not None:
        document["oomScoreAdj"] = {"value": group.oom_score.adj, "why": score_sentence(group.oom_score)}
    return document


def _difference_document(difference: Difference, version: int) -> dict[str, Any]:
    group = difference.group
    document: dict[str, Any] = {
        "path": _file_path(difference.path, difference.file, version),
        "file": difference.file,
        "expected": difference.expected,
        "found": difference.found,
        "why": difference_reason(difference),
    }
    if group is not None:
        document |= {
            key: value for key, value in (("pod", group.pod), ("container", group.container)) if value
        }
    return document


def _refused_document(refusal: Refusal) -> dict[str, Any]:
    meta = refusal.pod.metadata
    return {
        "name": meta.name,
        "namespace": meta.namespace or "default",
        "reason": refusal.kubelet.reason,
        "message": refusal.kubelet.message,
    }
