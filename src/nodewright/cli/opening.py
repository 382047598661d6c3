"""What commands do that put pods to a node, before they ask it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodewright.ask import Node
from nodewright.cli.inputs import tell, workloads
from nodewright.cli.options import Question
from nodewright.model.profile import NodeProfile
from nodewright.world.manifests import Workload
from nodewright.world.nodes import find_profile


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
    profile = find_profile(question.node)
    source = question.node or "this machine"
    node = Node.of(profile, kubelet_config=question.kubelet_config, source=source)
    warnings = (*loaded.warnings, *node.warnings)
    tell(loaded, warnings, strict=question.strict)
    return Opened(
        workloads=loaded.workloads, skipped=loaded.skipped, profile=profile, node=node, warnings=warnings
    )
