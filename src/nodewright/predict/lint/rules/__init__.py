"""All lint rules, their selection, and the violations that they report."""

from collections.abc import Iterable, Iterator

import msgspec

from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.lint.lint_model import (
    ConfigSubject,
    LintContext,
    LintRule,
    PodSubject,
    RuleViolation,
    Severity,
    Subject,
)
from nodewright.predict.lint.lint_run import decisive_text
from nodewright.predict.lint.rules.amount_rules import AMOUNT_RULES
from nodewright.predict.lint.rules.config_rules import CONFIG_RULES
from nodewright.predict.lint.rules.manager_rules import MANAGER_RULES
from nodewright.predict.lint.rules.namespace_rules import NAMESPACE_RULES
from nodewright.predict.lint.rules.node_rules import NODE_RULES
from nodewright.predict.lint.rules.qos_rules import QOS_RULES

RULES = (*QOS_RULES, *AMOUNT_RULES, *NODE_RULES, *MANAGER_RULES, *CONFIG_RULES, *NAMESPACE_RULES)
UNUSED_IGNORE = LintRule("NW001", Severity.WARNING, (), lambda _subject, _context: iter(()))
"""Checked after all other rules: a comment or annotation that ignores nothing."""
RULES_BY_ID = {rule.id: rule for rule in (UNUSED_IGNORE, *RULES)}


class RuleSelection(msgspec.Struct, frozen=True):
    """The selected rules."""

    only: frozenset[str] = frozenset()
    """Empty: all."""
    disabled: frozenset[str] = frozenset()

    def includes(self, rule: LintRule) -> bool:
        """Whether the rule is selected."""
        return rule.id not in self.disabled and (not self.only or rule.id in self.only)

    def rules(self, *, with_nodes: bool) -> tuple[LintRule, ...]:
        """The selected rules that can run with or without nodes."""
        return tuple(rule for rule in RULES if self.includes(rule) and (with_nodes or not rule.needs_node))


ALL_RULES = RuleSelection()
_MAX_KEPT = 4096
"""Number of texts of pods without violations."""


def applies(rule: LintRule, subject: Subject, context: LintContext) -> bool:
    """Whether the rule is about the release of the subject: of its kubelet, or of any kubelet that a pod may run on."""
    if not rule.since:
        return True
    order = list(RELEASE_TABLES)
    releases = {subject.release} if isinstance(subject, ConfigSubject) else context.releases
    return any(order.index(release) >= order.index(rule.since) for release in releases)


def rule_violations(
    subjects: Iterable[Subject], context: LintContext, selection: RuleSelection = ALL_RULES
) -> Iterator[RuleViolation]:
    """The violations of the selected rules, object by object in the given order, rule by rule.

    The violations of an object do not depend on that order. A pod that is like one without violations has none.
    """
    rules = selection.rules(with_nodes=bool(context.nodes))
    applied: dict[tuple[type[Subject], str], list[LintRule]] = {}
    sound_texts: set[bytes] = set()
    for subject in subjects:
        text = decisive_text(subject) if isinstance(subject, PodSubject) else None
        if text in sound_texts:
            continue
        key = type(subject), subject.release if isinstance(subject, ConfigSubject) else ""
        if key not in applied:
            applied[key] = [
                rule
                for rule in rules
                if isinstance(subject, rule.subject_types) and applies(rule, subject, context)
            ]
        is_sound = True
        for rule in applied[key]:
            for violation in rule.check(subject, context):
                is_sound = False
                yield RuleViolation(rule=rule, subject=subject, violation=violation)
        if is_sound and text is not None and len(sound_texts) < _MAX_KEPT:
            sound_texts.add(text)
