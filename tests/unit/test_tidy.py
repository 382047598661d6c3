"""The rules of the house that no other tool checks."""

import ast
import gc
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nodewright.cli.app import COMMANDS
from nodewright.testing.conformance.vectors import ALL_FAMILIES
from tools.source import ROOT, SECTIONS, Module, Symbol, modules, sections

MODULE_LINES = 700
FUNCTION_LINES = 40
PURE_LAYERS = ("model", "engine")

SOURCE = modules("src")
WRITTEN = modules("src", "tests", "benchmarks", "tools")

IMPURE = re.compile(r"\b(open|print|input|__import__|eval|exec)\s*\(")

# A name that a library calls by, and a noun.
NAMED_WELL = {
    "get_command",
    "GRPCPluginRegistrationClient.get_info",
    "LazyGroup.get_command",
    "PluginRegistrationClient.get_info",
    "process_identity",
    "process_limit",
}

# `v1.36, file, symbol`; other software by name and version; a KEP; a document of the kernel.
SOURCE_OF_A_RULE = re.compile(
    r"(v1\.\d+|[\w.-]+(/[\w.-]+)* v?\d+(\.\d+)*|Go|Linux), \S.*|KEP-\d+(, \S.*)?|Linux, \S.*"
)
# What other houses call their sections; ours are those of SECTIONS.
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
FOREIGN_SECTION = re.compile(
    r"\s*(Arg|Args|Arguments|Param|Params|Parameters|Return|Returns|Yields|Raises|Unit|Error|Follow|Depart|"
    r"Departure|Note|Notes|Example|Examples|See also):(\s.*)?",
    re.IGNORECASE,
)


@pytest.fixture(scope="module", autouse=True)
def trees_are_set_aside() -> Iterator[None]:
    """Millions of nodes stay, and would be searched for garbage in the tests that follow."""
    yield
    gc.freeze()


@cache
def symbols() -> tuple[tuple[Module, Symbol], ...]:
    """The classes and functions of the source; to parse all of it takes a second."""
    return tuple((module, symbol) for module in SOURCE for symbol in module.symbols)


def texts() -> list[Path]:
    """The files that people read."""
    paths = [module.path for module in WRITTEN]
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "changes/*.md",
        "Makefile",
        "pyproject.toml",
        "tools/*.sh",
        ".ci/*",
    ):
        paths += sorted(ROOT.glob(pattern))
    return [path for path in paths if path != Path(__file__)]


def is_exempt_from_size(node: ast.AST) -> bool:
    """A class is as long as its module; a match with a statement or two a case is a table."""
    if isinstance(node, ast.ClassDef):
        return True
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    last = node.body[-1]
    is_alone = len(node.body) - (ast.get_docstring(node) is not None) == 1
    return is_alone and isinstance(last, ast.Match) and all(len(case.body) <= 2 for case in last.cases)


def places(failures: list[str]) -> str:
    return "\n".join(["", *failures])


def test_modules_and_functions_can_be_read_in_one_sitting() -> None:
    modules_too_long = {
        module.place: f"{lines} lines, at most {MODULE_LINES}"
        for module in WRITTEN
        if (lines := len(module.text.splitlines())) > MODULE_LINES
    }
    functions_too_long = {
        f"{module.place}: {symbol.name}": f"{symbol.own_lines} lines, at most {FUNCTION_LINES}"
        for module, symbol in symbols()
        if symbol.own_lines > FUNCTION_LINES and not is_exempt_from_size(symbol.node)
    }
    too_long = modules_too_long | functions_too_long
    assert not too_long, places([f"{place}: {size}" for place, size in too_long.items()])


def test_names_say_what_is_answered() -> None:
    bad = [
        f"{module.place}:{symbol.node.lineno}: {symbol.name}"
        for module, symbol in symbols()
        if symbol.name not in NAMED_WELL
        and re.match(r"_?(get|handle|process)_|.*(Helper|Util)", symbol.name.rpartition(".")[2])
    ]
    bad += [module.place for module in SOURCE if re.search(r"helper|util", module.name)]
    assert not bad, places(bad)


def docstrings() -> list[tuple[str, str]]:
    texts = [(module.place, module.docstring) for module in SOURCE]
    texts += [
        (f"{module.place}:{symbol.node.lineno}: {symbol.name}", symbol.docstring)
        for module, symbol in symbols()
    ]
    return texts


def test_sections_of_docstrings_have_their_form() -> None:
    bad = []
    for place, docstring in docstrings():
        before = ""
        for line in FENCED.sub("", inspect.cleandoc(docstring)).splitlines():
            starts = line.startswith(tuple(f"{name}:" for name in SECTIONS))
            in_section = before.startswith((*(f"{name}:" for name in SECTIONS), " "))
            if FOREIGN_SECTION.fullmatch(line):
                bad.append(f"{place}: `{line.strip()}`: sections are {', '.join(SECTIONS)}")
            elif starts and not re.match(r"\w+: +\S", line):
                bad.append(f"{place}: `{line}`: the text begins beside the name")
            elif in_section and line and not starts and not line.startswith(" "):
                bad.append(f"{place}: `{line}`: lines that continue a section are indented")
            before = line or ""
    assert not bad, places(bad)


def test_what_we_follow_is_named_so_that_it_can_be_found() -> None:
    bad = [
        f"{place}: Follows: {section.text}"
        for place, docstring in docstrings()
        for section in sections(docstring)
        if section.name == "Follows" and not SOURCE_OF_A_RULE.fullmatch(section.text)
    ]
    assert not bad, places(bad)


def test_every_module_is_used() -> None:
    used = {name for module in SOURCE for name in module.imported() if module.name != name}
    used |= {
        "nodewright.__main__",
        *(f"nodewright.cli.{(row.place or name).partition(':')[0]}" for name, row in COMMANDS.items()),
    }
    used |= {f"nodewright.testing.conformance.{family.replace('-', '_')}" for family in ALL_FAMILIES}
    # What is there for tests of other projects, ours use.
    testing = "nodewright.testing"
    by_tests = [module for module in modules("tests", "benchmarks", "tools") if testing in module.text]
    used |= {name for module in by_tests for name in module.imported() if name.startswith(f"{testing}.")}
    # Modules that are started by name.
    used |= {name for module in SOURCE for name in re.findall(r'"(nodewright(?:\.\w+)+)"', module.text)}
    # What the guide shows, its readers use.
    guide = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "guide").glob("*.md"))
    used |= set(re.findall(r"from (nodewright[\w.]*) import", guide))
    unused = [
        module.place for module in SOURCE if module.name not in used and module.path.name != "__init__.py"
    ]
    assert not unused, places(unused)


@pytest.mark.parametrize("layer", PURE_LAYERS)
def test_pure_layers_open_print_and_ask_nothing(layer: str) -> None:
    # Few modules have such a call in their text, if only in an example; those are parsed.
    impure = [
        f"{module.place}:{node.lineno}: {node.func.id}()"
        for module in modules(f"src/nodewright/{layer}")
        if IMPURE.search(module.text)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and IMPURE.fullmatch(f"{node.func.id}(")
    ]
    assert not impure, places(impure)


def test_no_file_is_read_by_a_module_that_can_run_code() -> None:
    # A shim reads what its parent wrote into a memfd: nobody else has it, and json would delay every start.
    allowed = {("children", "marshal"), ("shim", "marshal")}
    bad = [
        f"{module.place}: {name}"
        for module in SOURCE
        for name in module.imported()
        if name.split(".")[0] in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
        and (module.path.stem, name) not in allowed
    ]
    assert not bad, places(bad)


def test_silenced_checks_say_why() -> None:
    silent = re.compile(
        r"#\s*noqa(?!: [A-Z]+\d+(, ?[A-Z]+\d+)* - \S)|#\s*type:\s*ignore(?!\[[\w, -]+\]  ?(#|-) ?\S)"
    )
    bad = [
        f"{module.place}:{number}: {line.strip()}"
        for module in WRITTEN
        if module.path != Path(__file__)
        for number, line in enumerate(module.text.splitlines(), 1)
        if silent.search(line)
    ]
    assert not bad, places(bad)


def test_tests_use_fakes_not_mocks() -> None:
    bad = [
        module.place
        for module in modules("tests")
        if "mock" in module.text and any("mock" in name for name in module.imported())
    ]
    assert not bad, places(bad)


def test_event_loops_are_closed_where_they_are_made() -> None:
    """One that is not is a warning, and so a failure, of whichever test runs when it is collected."""
    made = [module for module in WRITTEN if "asyncio.new_event_loop()" in module.text]
    assert made
    assert not [module.place for module in made if "loop.close()" not in module.text]


def test_laws_leave_the_number_of_examples_to_the_profile() -> None:
    """Else many by night would be as few as at the desk."""
    bad = [module.place for module in modules("tests") if "settings(max_examples" in module.text]
    # Costly ones take a share of the profile's number.
    allowed = ("tests/unit/test_tidy.py", "tests/support/costly_laws.py")
    assert not [place for place in bad if place not in allowed], places(bad)


def test_unit_tests_stand_where_their_module_stands() -> None:
    astray = [
        module.place
        for module in modules("tests/unit")
        if not (
            ROOT / "src" / "nodewright" / module.path.parent.relative_to(ROOT / "tests" / "unit")
        ).is_dir()
    ]
    assert not astray, places(astray)


def test_nothing_is_left_for_later_or_names_somebodys_machine() -> None:
    left = re.compile(
        r"\b(TODO|FIXME|XXX|HACK)\b|(?<![\w./~-])/(home|work|Users)/|\b(issue|ticket) #?\d+\b", re.IGNORECASE
    )
    bad = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if left.search(line)
    ]
    assert not bad, places(bad)


def test_a_change_is_told_in_a_sentence_or_two() -> None:
    long = [
        path.name for path in (ROOT / "changes").glob("*.md") if len(path.read_text("utf-8").split()) > 80
    ]
    assert not long, places(long)


# Private idiom and personification: standard terms exist for all of these (CONTRIBUTING.md, Language).
UNUSED_WORDS = re.compile(
    r"\b(anew|in vain|what comes of|comes of it|bears? with|puts? up with|makes? way|is told of|said is|whoever|"
    r"in (its|their) stead|nobody else|has to go|have to go|who goes|who has to)\b",
    re.IGNORECASE,
)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that people read, in a file that has such a word: of a module, docstrings and comments."""
    text = path.read_text("utf-8")
    if not UNUSED_WORDS.search(text):
        return
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])


def test_words_of_a_private_idiom_are_not_used() -> None:
    pages = [path for path in texts() if path.suffix == ".md" and "shots" not in path.parts]
    bad = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in [*pages, *(module.path for module in SOURCE)]
        for number, line in prose(path)
        if (match := UNUSED_WORDS.search(line)) and "Follows:" not in line
    ]
    assert not bad, places(bad)


# A rename of an identifier by search and replace reaches into sentences: an identifier there stands in backticks.
IDENTIFIER = re.compile(r"""(?<![`\w./\-\[(\"'=:*{])([a-z]+_[a-z_0-9]+)(?![`\w/({=\]\"'\-:*}]|\.\w)""")
NAMES_OF_LINUX = {"oom_score_adj", "pid_max", "cpu_manager_state", "memory_manager_state"}
"""Files that Kubernetes' own documentation names like words."""


def test_sentences_are_made_of_words() -> None:
    bad = [
        f"{module.place}: {name}: {line.strip()}"
        for module in WRITTEN
        if IDENTIFIER.search(module.text)
        for node in module.statements()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in str(node.value.value).splitlines()
        if not re.match(r"\s*(>>>|\.\.\.|# (HELP|TYPE)|Units:|Follows:|Departs:)", line)
        for name in IDENTIFIER.findall(line)
        if name not in NAMES_OF_LINUX
    ]
    assert not bad, places(bad)


# Carriers of any value: a local is named for its content.
UNUSED_NAMES = frozenset({"one", "found", "told", "said", "asked", "done", "wish", "mind"})
STORED_NAME = re.compile(rf"\b({'|'.join(sorted(UNUSED_NAMES))})\b\s*([-+*/%&|^@<>]*=|:|,|\)|\]|in\b)")
"""What may be a name that is assigned; a module with such a text is parsed."""


def document_fields(tree: ast.AST) -> set[ast.AST]:
    """The names that declare fields of classes: documents have them as keys."""
    return {
        statement.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }


COUNTED_NOUN = re.compile(
    r"\{([^{}()]*)\} (?:(?:more|other|NUMA) )?"
    r"(?:pods|nodes|containers|CPUs|events|findings|entries|values|steps|devices|objects|cores)\b"
)
IS_SEVERAL = re.compile(r"max|most|limit|total|per_?core", re.IGNORECASE)
"""In the expression of a number that is a limit, or more than one where the text is made."""
NOT_COUNTS = {
    "amount",
    "cpus",
    "group.qos_class",
    "extent",
    "self.requested",
    "self.group",
    "size",
    "count",
    "workload.replicas",
}
"""Adjectives, texts of the kubelet, fractions, and numbers that are never 1."""


def test_a_count_has_its_noun_in_the_right_number() -> None:
    """`counted` prints a number with its noun: it knows 0, 1 and 2 of a thing."""
    failures = [
        f"{module.path}: {match[0]}"
        for module in SOURCE
        for match in COUNTED_NOUN.finditer(module.text)
        if not IS_SEVERAL.search(match[1]) and match[1] not in NOT_COUNTS
    ]
    assert not failures, places(failures)


NOT_READABLE = re.compile(r"(?<![\w.@:/-])\d{7,}(?![\w.])")
EXACT = re.compile(
    r"kubelet: |API server: |used: \d+, capacity: \d+|, allocatable: \d+$|\[memorymanager\] |[Pp]riority|inodes|<=x|\w+: '?\d+'?$|2000\d{6}|memory\.max|hugetlb|pids\.|oom_score_adj|^write |start container"
)
"""Texts of Kubernetes, priorities, inodes, ranges of options, documents in YAML, and contents of cgroup files."""


def test_amounts_of_bytes_are_printed_as_people_write_them() -> None:
    """`3.32Gi`, never 3560281088: in whatever the commands print for people, see docs/shots and tests/golden."""
    folders = (ROOT / "docs" / "shots", ROOT / "tests" / "golden")
    failures = [
        f"{path.name}: {line}"
        for path in sorted(path for folder in folders for path in folder.rglob("*.txt"))
        for line in path.read_text("utf-8").splitlines()
        if NOT_READABLE.search(line) and not EXACT.search(line)
    ]
    assert not failures, places(failures)


def test_locals_are_named_for_their_content() -> None:
    bad = [
        f"{module.place}:{node.lineno}: {node.id}"
        for module in SOURCE
        if STORED_NAME.search(module.text)
        for fields in [document_fields(module.tree)]
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in UNUSED_NAMES
        if node not in fields
    ]
    assert not bad, places(bad)


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(folder.glob("0*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert not [
        page.name for page in pages if f"({page.name})" not in (folder / "README.md").read_text("utf-8")
    ]
    titles = [page.read_text("utf-8").splitlines()[0] for page in pages]
    assert not [title for number, title in enumerate(titles, 1) if not title.startswith(f"# {number}. ")]


def test_every_page_is_reachable() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs" / "guide").glob("*.md")]
    assert not [page for page in pages if f": {page}" not in navigation]


def test_the_modules_are_found() -> None:
    assert Module(Path(__file__)).name == "tests.unit.test_tidy"
    assert {"nodewright.model.values.quantity", "nodewright.cli.app"} <= {module.name for module in SOURCE}
