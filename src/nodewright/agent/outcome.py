"""What an observation led to: the mind as it is now, what of it is to outlive the agent, and works."""

from collections.abc import Mapping

import msgspec

from nodewright.agent.values import Mind, PodRecord, Source, Work
from nodewright.core.eviction import Eviction
from nodewright.model.objects import Pod
from nodewright.node.events import Event
from nodewright.node.state import NodeState
from nodewright.node.step import Step


class Stepped(msgspec.Struct, frozen=True):
    """What went into `step`, and what came of it: for the journal."""

    event: Event
    step: Step


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """What is to outlive the agent, all of it or nothing, before anything else is done."""

    node: NodeState
    """The node as it is now."""
    stepped: tuple[Stepped, ...] = ()
    """What led to it, for the journal."""
    pods: Mapping[str, PodRecord | None] = {}
    """By uid the pods of which something has changed; None: it is gone for good."""
    deferred: tuple[tuple[Source, Pod], ...] | None = None
    """Pods that are to come later; None: they are as they were."""
    are_holdings_new: bool = False
    """Whether somebody holds other CPUs, memory or devices than before."""

    @property
    def is_nothing(self) -> bool:
        """Whether all is as it was."""
        return not (self.stepped or self.pods or self.are_holdings_new or self.deferred is not None)

    def then(self, later: "Keeping") -> "Keeping":
        """Both at once."""
        return Keeping(
            node=later.node,
            stepped=(*self.stepped, *later.stepped),
            pods={**self.pods, **later.pods},
            deferred=self.deferred if later.deferred is None else later.deferred,
            are_holdings_new=self.are_holdings_new or later.are_holdings_new,
        )


class Decided(msgspec.Struct, frozen=True):
    """What an observation led to."""

    mind: Mind
    keeping: Keeping
    works: tuple[Work, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    """Who ends because the node ran short, and why."""
