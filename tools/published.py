"""Renders what docs, packaging and messages say about places from packaging/published.toml: `python -m tools published`.

Nothing names a place that does not exist: whoever took such a name would run code in users' pipelines.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tools.source import ROOT

PUBLISHED = "packaging/published.toml"
RENDERED = ("README.md", "docs/**/*.md", "packaging/**/*", "src/**/*.py", "pyproject.toml")


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The places; empty where there is none."""

    index: str = ""
    repository: str = ""
    homepage: str = ""
    image: str = ""

    @property
    def source(self) -> str:
        """What installers are given."""
        return self.index or "./nodewright"

    @property
    def on_github(self) -> str:
        """OWNER/NAME on github.com."""
        host, _, name = self.repository.partition("https://github.com/")
        return name if name and not host else "OWNER/nodewright"


class Rule(NamedTuple):
    """What is replaced in the files of a pattern: the text between two groups, by what the places give."""

    files: str
    pattern: str
    text: Callable[[Published], str]


def _block(name: str) -> str:
    return rf"(<!-- published: {name} -->\n).*?(<!-- /published -->)"


def _install_text(published: Published) -> str:
    if published.index:
        text = f"nodewright needs Python 3.11 or newer. PyPI has it as `{published.index}`."
    else:
        text = (
            "nodewright needs Python 3.11 or newer. No package is published yet: install it from its source, here `nodewright/`, a clone or\n"
            "an unpacked archive, or from the file of a release, `./nodewright-VERSION-py3-none-any.whl`."
        )
    url = published.repository or "https://HOST/OWNER/nodewright"
    return f"{text}\nA URL of git works in its place (`git+{url}@TAG`).\n"


def _action_text(published: Published) -> str:
    if published.on_github == "OWNER/nodewright":
        return "nodewright is on no public host yet: `OWNER` is where you keep a copy.\n"
    return ""


_INSTALLERS = "(?:pip|pipx|uv tool) install"
RULES = (
    Rule("src/nodewright/version.py", r'(?m)(^SOURCE = ").*?("$)', lambda published: published.source),
    Rule("**/*.*", rf"({_INSTALLERS} ')(?:\./)?[\w-]+(\[)", lambda published: published.source),
    Rule(
        "**/*.*",
        r"((?:pip install|pipx inject nodewright) )(?:'[^'{]+/packaging/recordings'|[\w-]+-recordings)()",
        lambda published: f"{published.index}-recordings"
        if published.index
        else f"'{published.source}/packaging/recordings'",
    ),
    # The reader of README.md is in the source.
    Rule("README.md", r"(To install the command: `pipx install ')[^'\[]+(\[)", lambda published: published.index or "."),
    Rule("docs/guide/getting-started.md", _block("install"), _install_text),
    Rule("docs/guide/ci.md", _block("action"), _action_text),
    Rule("docs/guide/ci.md", r"(uses: )\S+(/packaging/github-action)", lambda published: published.on_github),
    Rule("packaging/**/action.yml", r"(uses: )\S+(/packaging/github-action)", lambda published: published.on_github),
    Rule(
        "docs/guide/ci.md",
        r"(install git\+)\S+(@COMMIT)",
        lambda published: published.repository or "https://HOST/OWNER/nodewright",
    ),
    Rule("docs/guide/ci.md", r"(repo: https://github\.com/)\S+(\n)", lambda published: published.on_github),
    Rule(
        "packaging/helm/nodewright/values.yaml",
        r"(\n  repository: )[^\n]*(\n)",
        lambda published: published.image
        or '""           # Required: the image that you have built and pushed; none is published.',
    ),
    Rule(
        "packaging/kubernetes/base/kustomization.yaml",
        r"(  - name: registry\.invalid/nodewright\n)(?:    newName: [^\n]*\n)?(    newTag)",
        lambda published: f"    newName: {published.image}\n" if published.image else "",
    ),
    Rule(
        "pyproject.toml",
        r"(\n\n)(?:# No \[project\.urls\]|\[project\.urls\])[^\n]*(?:\n\w[^\n]*)*(\n\n)",
        lambda published: f'[project.urls]\nHomepage = "{published.homepage}"'
        if published.homepage
        else "# No [project.urls]: the project has no public page yet, and the index would show links that lead nowhere.",
    ),
)  # fmt: skip


def read_published(root: Path = ROOT) -> Published:
    """The places that the file names."""
    return msgspec.convert(tomllib.loads((root / PUBLISHED).read_text("utf-8")), Published)


def rendered(name: str, text: str, published: Published) -> str:
    """The text of the file with what the places give; unchanged where no rule applies.

    >>> rendered("docs/guide/x.md", "`pip install './nodewright[agent]'`", Published(index="node-wright"))
    "`pip install 'node-wright[agent]'`"
    """
    for rule in RULES:
        if Path(name).match(rule.files):
            text = _replaced(rule, text, rule.text(published))
    return text


def _replaced(rule: Rule, text: str, new: str) -> str:
    return re.sub(rule.pattern, lambda match: match[1] + new + match[2], text, flags=re.DOTALL)


def changed_files(published: Published, root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """The files whose text differs from what the places give, with that."""
    for pattern in RENDERED:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and path.suffix in {".md", ".py", ".yaml", ".yml", ".toml"}:
                text = path.read_text("utf-8")
                if "nodewright" not in text:
                    continue
                name = path.relative_to(root).as_posix()
                if name != PUBLISHED and (new := rendered(name, text, published)) != text:
                    yield path, new


def main() -> None:
    """Writes the files that differ."""
    for path, text in changed_files(read_published()):
        path.write_text(text, "utf-8")
        print(path.relative_to(ROOT))
