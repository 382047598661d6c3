"""The Python API of the engine: a `Node` admits, resizes, explains and previews pods; also used by the commands."""

from nodewright.engine.node import AdmitResult, Node, NodeCgroups, load_pods
from nodewright.engine.node_from_profile import DEFAULT_NAME, node_parts, profile_release

__all__ = ["DEFAULT_NAME", "AdmitResult", "Node", "NodeCgroups", "load_pods", "node_parts", "profile_release"]
