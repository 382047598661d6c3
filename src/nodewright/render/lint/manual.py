"""The pages of documentation of the rules, and the list of them."""

from collections.abc import Iterable

from nodewright.lint.findings import Rule
from nodewright.render.lint.words import PAGES
from nodewright.render.tables import table

ABOUT = {
    "PodSubject": "pods and what makes them",
    "ConfigSubject": "KubeletConfigurations",
    "LimitsSubject": "LimitRanges",
    "QuotaSubject": "ResourceQuotas",
}


_NOT_TOLD = (
    "A comment `# nodewright: ignore {rule} REASON` beside the field or above it, the annotation "
    "`nodewright.dev/ignore: {rule}` on the object, or `--disable {rule}` for all files."
)


def rule_page(rule: Rule) -> str:
    """The page of a rule as Markdown."""
    page = PAGES[rule.id]
    about = ", ".join(ABOUT[one.__name__] for one in rule.about) or "all files"
    needs = " It finds nothing unless nodes are given with `--node`." if rule.needs_node else ""
    parts = [
        f"# {rule.id}: {page.title}",
        f"Severity: **{rule.severity}**. It looks at {about}.{needs}",
        "## Why",
        page.why,
        "## What to do",
        page.mend,
    ]
    parts += [
        f"## Found{_given(rule)}",
        f"```yaml\n{page.bad}```",
        "## Not found",
        f"```yaml\n{page.good}```",
    ]
    if page.kubelet:
        parts += ["## The kubelet of the examples", f"```yaml\n{page.kubelet}```"]
    parts += [
        "## Not to be told",
        _NOT_TOLD.format(rule=rule.id),
    ]
    return "\n\n".join(parts) + "\n"


def rules_page(rules: Iterable[Rule]) -> str:
    """The list of all rules as Markdown."""
    lines = [
        "# Rules of nodewright lint",
        "",
        "Ids never change their meaning. NW1xx look at pods, NW2xx at pods on the nodes given, NW3xx at the kubelet's",
        "configuration, NW4xx at what namespaces allow; NW001 looks after ignores. Made from the code by `make docs`.",
        "[Traps](traps.md) tells which known traps of Kubernetes they stand for, and which no file can show.",
        "",
        "| Rule | Severity | What it finds | Needs nodes |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| [{rule.id}]({rule.id}.md) | {rule.severity} | {PAGES[rule.id].title} | {'yes' if rule.needs_node else ''} |"
        for rule in rules
    ]
    return "\n".join([*lines, ""])


def rules_table(rules: Iterable[Rule]) -> str:
    """The list of all rules for a terminal."""
    rows = [
        (rule.id, str(rule.severity), "yes" if rule.needs_node else "-", PAGES[rule.id].title)
        for rule in rules
    ]
    return table(("RULE", "SEVERITY", "NEEDS NODES", "WHAT IT FINDS"), rows)


def _given(rule: Rule) -> str:
    page = PAGES[rule.id]
    if not page.node:
        return ""
    nodes = " ".join(f"--node {name}" for name in page.node.split())
    return f" (with `{nodes}{' --kubelet-config kubelet.yaml' if page.kubelet else ''}`)"
