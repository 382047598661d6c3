"""The feature gates of a recorded question."""

from collections.abc import Mapping
from typing import Any

from nodewright.model.releases.feature_gates import FeatureGates, gates_set
from nodewright.model.releases.release_table import ReleaseTable


def question_gates(question: Mapping[str, Any], release: ReleaseTable) -> FeatureGates:
    """The release's gates with those that the question sets, which were recorded without the kubelet's checks."""
    return gates_set(question.get("featureGates") or {}, release)
