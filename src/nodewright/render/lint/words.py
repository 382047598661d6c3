"""What was found, as sentences, and the edit that would mend it."""

import json
from collections.abc import Mapping
from typing import Any

from nodewright.lint.findings import Edit, Found, Rule
from nodewright.model.limit_reasons import LimitReason
from nodewright.model.quota_reasons import MustSpecify, QuotaExceeded
from nodewright.model.reasons import InsufficientResource, Reason
from nodewright.node.counterfactual import Suggestion
from nodewright.render.limit_messages import limit_message
from nodewright.render.lint.amount_pages import AMOUNT_PAGES
from nodewright.render.lint.config_pages import CONFIG_PAGES
from nodewright.render.lint.manager_pages import MANAGER_PAGES
from nodewright.render.lint.namespace_pages import NAMESPACE_PAGES
from nodewright.render.lint.node_pages import NODE_PAGES
from nodewright.render.lint.page import Page
from nodewright.render.lint.qos_pages import QOS_PAGES
from nodewright.render.messages import message
from nodewright.render.quota_messages import quota_message
from nodewright.render.sentences import sentence
from nodewright.render.suggestions import suggestion_text

PAGES: Mapping[str, Page] = {
    **NAMESPACE_PAGES,
    **QOS_PAGES,
    **AMOUNT_PAGES,
    **NODE_PAGES,
    **MANAGER_PAGES,
    **CONFIG_PAGES,
}

_AGAIN = {
    "DaemonSet": "the DaemonSet controller makes it again on the spot, without end",
    "Job": "each counts as a failure of the Job, until its backoffLimit",
    "CronJob": "each counts as a failure of the Job, until its backoffLimit",
    "Pod": "the pod fails and stays so",
    "PodTemplate": "pods made of it fail",
}
_ENDLESS = "its controller makes another one each time, without end (a replica storm)"
_NEVER_MADE = {"Pod": "the API server does not take it", "PodTemplate": "pods made of it are not taken"}
_TRIED_AGAIN = "no pod is made, and its controller goes on trying"


def finding_text(rule: Rule, found: Found) -> str:
    """What is wrong, in a sentence without a full stop."""
    facts = {name: _words(value) for name, value in found.facts.items()}
    kind = str(found.facts.get("kind", ""))
    if "fault" in facts:
        facts["fault"] = sentence(found.facts["fault"])
    facts["consequence"] = _AGAIN.get(kind, _ENDLESS)
    facts["refusal"] = _NEVER_MADE.get(kind, _TRIED_AGAIN)
    facts["sent"] = "the scheduler may send it there, and " if found.facts.get("scheduled") else ""
    cpus = facts.get("cpus")
    facts["pinned"] = f": no CPUs of their own for {cpus}" if cpus else ""
    if "changes" in facts:
        facts["changes"] = f"; what would do: {facts['changes']}" if facts["changes"] else ""
    return PAGES[rule.id].says.format_map(facts)


def fix_text(edits: tuple[Edit, ...]) -> str:
    """The edit in words; empty: there is none to tell."""
    return "; ".join(map(_edit, edits))


def _edit(edit: Edit) -> str:
    if edit.is_open:
        return f"set {edit.path}"
    if edit.value is None:
        return f"remove {edit.path}"
    is_plain = isinstance(edit.value, str) and not edit.value.isdecimal()
    value = edit.value if is_plain else json.dumps(edit.value)
    return f"{edit.path}: {value}"


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return "; ".join(map(_words, value))
    if isinstance(value, InsufficientResource):
        return sentence(value)
    if isinstance(value, Suggestion):
        return suggestion_text(value)
    if isinstance(value, MustSpecify | QuotaExceeded):
        return quota_message(value)
    if isinstance(value, LimitReason):
        return limit_message(value)
    if isinstance(value, Reason):
        reason = message(value).reason
        return f"{sentence(value)}{f' ({reason})' if reason else ''}"
    return str(value)
