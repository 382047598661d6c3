"""All rules, and what those that are wanted find."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodewright.lint.amount_rules import AMOUNT_RULES
from nodewright.lint.config_rules import CONFIG_RULES
from nodewright.lint.findings import Finding, Rule, Severity
from nodewright.lint.manager_rules import MANAGER_RULES
from nodewright.lint.namespace_rules import NAMESPACE_RULES
from nodewright.lint.node_rules import NODE_RULES
from nodewright.lint.qos_rules import QOS_RULES
from nodewright.lint.subjects import Around, Subject

RULES = (*QOS_RULES, *AMOUNT_RULES, *NODE_RULES, *MANAGER_RULES, *CONFIG_RULES, *NAMESPACE_RULES)
UNUSED_IGNORE = Rule("NW001", Severity.WARNING, (), lambda _subject, _around: iter(()))
"""Found when all others are done: a comment or annotation that keeps nothing back."""
BY_ID = {rule.id: rule for rule in (UNUSED_IGNORE, *RULES)}


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules that are wanted."""

    only: frozenset[str] = frozenset()
    """Empty: all."""
    disabled: frozenset[str] = frozenset()

    def has(self, rule: Rule) -> bool:
        """Whether the rule is wanted."""
        return rule.id not in self.disabled and (not self.only or rule.id in self.only)

    def rules(self, *, with_nodes: bool) -> tuple[Rule, ...]:
        """The rules that are wanted and can find something."""
        return tuple(rule for rule in RULES if self.has(rule) and (with_nodes or not rule.needs_node))


EVERYTHING = Selection()


def findings(
    subjects: Iterable[Subject], around: Around, selection: Selection = EVERYTHING
) -> Iterator[Finding]:
    """What the rules find, object by object in the order given, rule by rule.

    What is found of an object does not depend on that order.
    """
    rules = selection.rules(with_nodes=bool(around.nodes))
    for subject in subjects:
        for rule in rules:
            if isinstance(subject, rule.about):
                for found in rule.look(subject, around):
                    yield Finding(rule=rule, subject=subject, found=found)
