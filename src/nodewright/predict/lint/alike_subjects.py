"""Pods that lint checks alike: the rules find nothing about a pod that is like one without violations.

Files of a cluster have thousands of workloads that differ in names, labels, images and variables only.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from nodewright.engine.core.requests.resource_breakdown import OS_LABEL
from nodewright.model.errors import ENCODING_ERRORS
from nodewright.predict.lint.lint_model import PodSubject

_IGNORED_METADATA = frozenset({"name", "generateName", "labels", "uid"})
_PROGRAM = frozenset({"image", "env", "envFrom", "command", "args"})
"""What a container runs, which no rule is about."""


def decisive_text(subject: PodSubject) -> bytes | None:
    """A text that is equal for pods about which the rules find the same; None: the pod is checked alone.

    It has everything that is written in the pod, except names, labels other than the operating system's, and what the
    containers run. What plugins and limit ranges add follows from that and from the namespace, unless the pod is refused.
    """
    template: Any = subject.document
    for step in subject.prefix.split(".")[:-1]:
        template = template.get(step) if isinstance(template, Mapping) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    meta = template.get("metadata") or {}
    spec = {name: _without_programs(value) for name, value in template["spec"].items()}
    own_meta = subject.document.get("metadata") or {}
    decisive = (
        subject.kind,
        subject.namespace,
        subject.prefix,
        subject.is_static,
        subject.pod is subject.as_submitted,
        bool(own_meta.get("uid")),
        (meta.get("labels") or {}).get(OS_LABEL),
        {name: value for name, value in meta.items() if name not in _IGNORED_METADATA},
        {**template, "apiVersion": None, "metadata": None, "spec": spec},
    )
    try:
        return msgspec.json.encode(decisive)
    except ENCODING_ERRORS:
        return None


def _without_programs(value: Any) -> Any:
    """The field of a spec; of containers, all but what they run."""
    if not isinstance(value, list):
        return value
    return [
        {name: part for name, part in item.items() if name not in _PROGRAM}
        if isinstance(item, dict)
        else item
        for item in value
    ]
