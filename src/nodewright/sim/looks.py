"""What an eviction manager is shown in a scenario, as events of the node."""

from nodewright.core.eviction import INTERVAL_S, attributed, table_reading
from nodewright.model.pressure import NodeCondition
from nodewright.model.usage import Usage
from nodewright.model.usage_table import Look, UsageTable
from nodewright.node.events import ConditionsObserved, UsageObserved
from nodewright.node.pressure import capacities_of, claims_of
from nodewright.node.state import NodeState
from nodewright.values.duration import Duration

BEFORE_ALL_S = -float(INTERVAL_S)
"""So that the first look is at zero."""


def time_s(look: Look, before_s: float) -> float:
    """When the eviction manager takes its look.

    Units: seconds since the beginning; ``before_s`` is the last time.
    """
    return before_s + INTERVAL_S if look.at is None else Duration.parse(look.at).nanoseconds / 10**9


def looking(state: NodeState, look: Look, clock_s: float) -> ConditionsObserved | UsageObserved:
    """The look as an event of this node.

    Units: clock_s in seconds since the beginning.
    """
    if look.conditions is not None:
        return ConditionsObserved(tuple(one for one in NodeCondition if one in look.conditions))
    return UsageObserved(
        usage=None if look.failed else _reading(state, look.summary or look.usage or UsageTable()),
        now_s=clock_s,
        after=None if look.after is None else _reading(state, look.after),
    )


def _reading(state: NodeState, read: Usage | UsageTable) -> Usage:
    if isinstance(read, UsageTable):
        read = table_reading(read, capacities_of(state.config), claims_of(state))
    return attributed(read, state.pods.values()).usage
