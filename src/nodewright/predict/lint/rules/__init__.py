"""All lint rules, and their selection.

A rule is a function with the decorator `lint_rule` in one of the modules: its docstring is its page.
"""

from collections.abc import Iterator

import msgspec

from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LintContext,
    LintRule,
    Severity,
    Subject,
    lint_rule,
)
from nodewright.predict.lint.rules import (
    amount_rules,
    claim_rules,
    config_rules,
    manager_rules,
    namespace_rules,
    node_rules,
    qos_rules,
    scheduler_rules,
)

_MODULES = (
    qos_rules,
    amount_rules,
    node_rules,
    scheduler_rules,
    manager_rules,
    config_rules,
    namespace_rules,
    claim_rules,
)
RULES = tuple(rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, LintRule))
"""The rules of each module in the order of their definitions."""


@lint_rule("NW001", Severity.WARNING, None)
def unused_ignore(_subject: Subject, _context: LintContext) -> Iterator[FieldViolation]:
    """An unused ignore.

    Finding: {rule} is ignored here but has no finding: {what}

    An ignore without a finding hides the next one. Ignores of rules that did not run (disabled, or without
    `--node`) are not checked.

    Remedy: Remove the comment or the annotation.

    ```diff
     apiVersion: v1
     kind: Pod
     metadata:
       name: web
     spec:
       containers:
    -  - name: app  # nodewright: ignore NW107 zero on purpose
    +  - name: app
         image: example.com/app
         resources:
           requests: {cpu: 100m, memory: 64Mi}
    ```
    """
    # The run checks it after all other rules.
    yield from ()


RULES_BY_ID = {rule.id: rule for rule in (unused_ignore, *RULES)}


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
