"""What commands do that put pods to a node, before they ask it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click
from msgspec.structs import replace

from nodewright.ask import Answer, Node
from nodewright.cli.inputs import tell, workloads
from nodewright.cli.options import PolicyChoice, Question
from nodewright.core.cpu.own import CPUPicker
from nodewright.core.eviction import EvictionPolicy
from nodewright.core.topology import TopologyPolicy
from nodewright.model.policies import Policy
from nodewright.model.profile import NodeProfile
from nodewright.node.config import NodeConfig
from nodewright.render.admission import Entry
from nodewright.render.policies import policies_text
from nodewright.world.manifests import Workload
from nodewright.world.nodes import find_profile
from nodewright.world.policies import registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The pods and the node of a question."""

    workloads: Sequence[Workload]
    skipped: Mapping[str, int]
    """What was passed over in the manifests: how many objects of each kind."""
    profile: NodeProfile
    node: Node
    warnings: tuple[str, ...]


def opened(question: Question) -> Opened:
    """What a question is about, read; what is odd about it is said on stderr.

    Errors: InputError with all faults of all files, or with the warnings if people are strict; WorldError if
        this machine is meant and cannot be read.
    """
    loaded = workloads(question.filenames, question.namespace)
    profile, policies = with_policies(find_profile(question.node), question.policies)
    source = question.node or "this machine"
    node = Node.of(profile, kubelet_config=question.kubelet_config, policies=policies, source=source)
    warnings = (*loaded.warnings, *node.warnings)
    tell(loaded, warnings, strict=question.strict)
    return Opened(
        workloads=loaded.workloads, skipped=loaded.skipped, profile=profile, node=node, warnings=warnings
    )


def with_policies(profile: NodeProfile, choice: PolicyChoice) -> tuple[NodeProfile, tuple[Policy, ...]]:
    """The profile with the names of the policies that are to decide, and the policies themselves.

    Errors: InputError for files that bring none, and for names that nobody has.
    """
    known, asked, found = registry(choice.files), profile.spec.policies, list[Policy]()
    if choice.topology is not None:
        asked = replace(asked, topology=choice.topology)
    if choice.cpu_picker is not None:
        asked = replace(asked, cpu_picker=choice.cpu_picker)
    if asked.topology:
        at = "--topology-policy" if choice.topology else "spec.policies.topology"
        found.append(known.find(TopologyPolicy, asked.topology, asked=at))
    if asked.cpu_picker:
        at = "--cpu-picker" if choice.cpu_picker else "spec.policies.cpuPicker"
        found.append(known.find(CPUPicker, asked.cpu_picker, asked=at))
    if choice.eviction is not None:
        asked = replace(asked, eviction=choice.eviction)
    if asked.eviction:
        at = "--policy" if choice.eviction else "spec.policies.eviction"
        found.append(known.find(EvictionPolicy, asked.eviction, asked=at))
    return replace(profile, spec=replace(profile.spec, policies=asked)), tuple(found)


def show(text: str, output: str | None, config: NodeConfig) -> None:
    """Print an answer. Which policies decide in the kubelet's place comes first; documents say it themselves."""
    note = policies_text(config)
    if note and output in (None, "wide"):
        click.echo(note)
    elif note and output == "name":
        click.echo(note, nl=False, err=True)
    click.echo(text, nl=False)


def entry_of(answer: Answer, workload: Workload) -> Entry:
    """The answer to the pod of a workload, to be shown."""
    return Entry(
        pod=answer.pod,
        decision=answer.decision,
        because=answer.because,
        victims=answer.victims,
        placement=answer.placement,
        origin="" if workload.kind == "Pod" else f"{workload.kind} {workload.name}",
    )
