"""Floor 7: ask a node. The engine behind one small door, for Python programs and for the command line."""

from nodewright.ask.described import DEFAULT_NAME, parts_of, release_of
from nodewright.ask.node import Answer, Cgroups, Node, load_pods

__all__ = ["DEFAULT_NAME", "Answer", "Cgroups", "Node", "load_pods", "parts_of", "release_of"]
