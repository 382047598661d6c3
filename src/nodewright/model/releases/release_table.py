"""The releases with rules of their own, each with its feature gates and rules.

A new release is a module like `v1_36` and a row here.
"""

from collections.abc import Mapping

import msgspec

from nodewright.model.releases import v1_32, v1_33, v1_34, v1_35, v1_36
from nodewright.model.releases.gate_table import GateTable
from nodewright.model.releases.release_rules import ReleaseRules


class ReleaseTable(msgspec.Struct, frozen=True):
    """What differs between a release and others."""

    name: str
    """Major and minor number: `1.36`."""
    gates: GateTable
    rules: ReleaseRules


RELEASE_TABLES: Mapping[str, ReleaseTable] = {
    name: ReleaseTable(name, module.GATES, module.RULES)
    for name, module in (
        ("1.32", v1_32),
        ("1.33", v1_33),
        ("1.34", v1_34),
        ("1.35", v1_35),
        ("1.36", v1_36),
    )
}
"""The releases with rules of their own by name, oldest first."""

NEWEST = RELEASE_TABLES["1.36"]
"""The release of nodes that name none."""
