"""Fleets: nodes and pods in virtual time, with the decisions of the default scheduler and of each kubelet.

>>> from nodewright.testing.fleets import a_template, some_nodes, some_pods
>>> from nodewright.fleet import run
>>> result = run(some_nodes(2), some_pods(3, a_template("cpu=2")))
>>> [result.nodes[pod.node].node.name for pod in result.pods]
['n0', 'n1', 'n0']
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodewright.fleet.runner import (
        SCORES,
        CandidateNode,
        Engine,
        EngineMissingError,
        NodeScorer,
        Options,
        Retry,
        map_chunks,
        node_scorer,
        run,
    )

__all__ = [
    "SCORES",
    "CandidateNode",
    "Engine",
    "EngineMissingError",
    "NodeScorer",
    "Options",
    "Retry",
    "map_chunks",
    "node_scorer",
    "run",
]


def __getattr__(name: str) -> Any:
    # Imports of one part of the package do not load all of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("nodewright.fleet.runner"), name)
