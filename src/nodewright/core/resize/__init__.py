"""May a pod that runs have other resources, without being made anew?"""

from nodewright.core.resize.amounts import RESIZABLE, allocated, counted, differs, increases, merged, pairs
from nodewright.core.resize.feasible import infeasible
from nodewright.core.resize.forbidden import beyond_node, features_missing, on_other_system
from nodewright.core.resize.queue import Pending, in_order
from nodewright.core.resize.restarts import Restart, restarts

__all__ = [
    "RESIZABLE",
    "Pending",
    "Restart",
    "allocated",
    "beyond_node",
    "counted",
    "differs",
    "features_missing",
    "in_order",
    "increases",
    "infeasible",
    "merged",
    "on_other_system",
    "pairs",
    "restarts",
]
