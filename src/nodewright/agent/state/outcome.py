"""The result of one iteration: the new state, the changes to persist, and the effects to run."""

from collections.abc import Mapping

import msgspec

from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource
from nodewright.agent.state.effects import Effect
from nodewright.engine.core.eviction.eviction_state import Eviction
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import NodeStep
from nodewright.model.kubernetes.objects import Pod


class StateChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What must be persisted, atomically, before the effects run."""

    node: NodeState
    """The node's new state."""
    node_steps: tuple[NodeStep, ...] = ()
    """The steps that led to it, for the journal."""
    pods: Mapping[str, PodRecord | None] = {}
    """The changed pods by uid; None: the record is deleted."""
    deferred: tuple[tuple[PodSource, Pod], ...] | None = None
    """The deferred pods; None: unchanged."""
    have_holdings_changed: bool = False
    """Whether the allocation of CPUs, memory or devices has changed."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to persist."""
        return not (self.node_steps or self.pods or self.have_holdings_changed or self.deferred is not None)

    def merged_with(self, later: "StateChanges") -> "StateChanges":
        """These changes followed by later ones, as one."""
        return StateChanges(
            node=later.node,
            node_steps=(*self.node_steps, *later.node_steps),
            pods={**self.pods, **later.pods},
            deferred=self.deferred if later.deferred is None else later.deferred,
            have_holdings_changed=self.have_holdings_changed or later.have_holdings_changed,
        )


class IterationResult(msgspec.Struct, frozen=True):
    """What one observation led to."""

    state: AgentState
    changes: StateChanges
    effects: tuple[Effect, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    """Pods evicted because the node is under pressure, and why."""
