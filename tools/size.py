"""How large the source is, by wing: `python -m tools.size [--base REV] [--no-times]` prints it, beside another commit.

Modules, packages and lines; the arrows between wings, the floors that they need, and circles of modules that import each
other; what `nodewright admit` loads, and the CPU time of commands from exec, beside the import of the dependencies.
"""

import argparse
import ast
import io
import os
import resource
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

from tools.source import ROOT

ADMIT = ("admit", "-f", "examples/admission/pods.yaml", "--node", "examples/nodes/worker.yaml")
RUNS = 7
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = frozenset(
    (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)
_LOADED = """
import sys
from nodewright import cli
sys.argv = ["nodewright", *sys.argv[1:]]
try:
    cli.main()
except SystemExit:
    pass
print(sum(name.partition(".")[0] == "nodewright" for name in sys.modules), file=sys.stderr)
"""

Edges = Mapping[str, set[str]]
"""What each module, or each wing, imports."""


def lines(text: str) -> Counter[str]:
    r"""The lines of a module by kind: code, docstrings, imports; blank lines and comments are of no kind.

    >>> sorted(lines('import os\n\ndef f():\n    "Yes."\n    return os\n').items())
    [('code', 2), ('docstrings', 1), ('imports', 1)]
    """
    docstrings: set[int] = set()
    imports: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_rows(node))
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(_rows(node.body[0]))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return Counter(code=len(code - docstrings - imports), docstrings=len(docstrings), imports=len(imports))


def _rows(node: ast.stmt) -> range:
    assert node.end_lineno is not None
    return range(node.lineno, node.end_lineno + 1)


def circles(edges: Edges) -> list[frozenset[str]]:
    """The largest groups of modules that import each other, also through others.

    >>> circles({"a": {"b"}, "b": {"a", "c"}, "c": set()}) == [{"a", "b"}]
    True
    """
    reachable = {module: _reachable(edges, module) for module in edges}
    groups = {
        frozenset(other for other in reached if module in reachable.get(other, ()))
        for module, reached in reachable.items()
        if module in reached
    }
    return sorted(groups, key=sorted)


def _reachable(edges: Edges, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [*edges.get(start, ())]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += edges.get(module, ())
    return reached


def floors(edges: Edges) -> int:
    """The length of the longest chain of imports between wings that import each other in no circle.

    >>> floors({"cli": {"model", "engine"}, "engine": {"model"}, "model": set()})
    3
    """
    known: dict[str, int] = {}

    def height(wing: str) -> int:
        known.setdefault(wing, 0)  # a circle ends here
        known[wing] = 1 + max((known.get(other) or height(other) for other in edges.get(wing, ())), default=0)
        return known[wing]

    return max(map(height, edges), default=0)


def figures(root: Path, *, with_times: bool) -> dict[str, int | str]:
    """All figures of the checkout, by name."""
    package = root / "src" / "nodewright"
    modules, by_wing = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for path in sorted(package.rglob("*.py")):
        wing = path.relative_to(package).parts[0].removesuffix(".py")
        modules[wing] += 1
        if not path.stem.endswith("_pb2"):
            by_wing[wing].update(lines(path.read_text("utf-8")))
    named: dict[str, int | str] = {
        wing: _row(modules[wing], by_wing[wing]) for wing in sorted(modules) if modules[wing] > 1
    }
    named["all"] = _row(modules.total(), sum(by_wing.values(), Counter[str]()))
    named["packages"] = sum(1 for _ in package.rglob("__init__.py"))
    imports = _imports(root)
    between = _between_wings(imports)
    named["wings"] = len(between)
    named["arrows between wings"] = sum(map(len, between.values()))
    named["floors of wings"] = floors(between)
    named["circles of modules"] = len(circles(imports))
    named["modules that admit loads"] = int(_run(root, "-c", _LOADED, *ADMIT).splitlines()[-1])
    return named | (_times(root) if with_times else {})


def _row(modules: int, kinds: Counter[str]) -> str:
    return f"{modules} modules, {kinds['code']} code, {kinds['docstrings']} docstrings, {kinds['imports']} imports"


def _imports(root: Path) -> Edges:
    """What each module imports, functions and type checking included, read in a process of its own."""
    code = "import grimp\ng = grimp.build_graph('nodewright', cache_dir=None)\n"
    code += "for m in g.modules: print(m, *g.find_modules_directly_imported_by(m))"
    rows = (line.split() for line in _run(root, "-c", code).splitlines())
    return {module: set(imported) for module, *imported in rows}


def _between_wings(imports: Edges) -> Edges:
    """The arrows between packages at the top; modules at the top belong to none."""
    wings = {name.split(".")[1] for name in imports if name.count(".") > 1}
    result: dict[str, set[str]] = {wing: set() for wing in wings}
    for module, imported in imports.items():
        for other in imported:
            start, end = (f"{name}.".split(".")[1] for name in (module, other))
            if start in wings and end in wings and start != end:
                result[start].add(end)
    return result


def _times(root: Path) -> dict[str, int | str]:
    """Milliseconds of CPU from exec to the end."""
    command = ("-c", "from nodewright.cli import main; main()")
    return {
        "admit, CPU ms": _cpu_ms(root, *command, *ADMIT),
        "--help, CPU ms": _cpu_ms(root, *command, "--help"),
        "import msgspec, yaml, click, CPU ms": _cpu_ms(root, "-c", "import msgspec, yaml, click"),
    }


def _cpu_ms(root: Path, *arguments: str) -> int:
    times = []
    _run(root, *arguments)  # compiles what has no bytecode
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run(root, *arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(median(times) * 1000)


def _run(root: Path, *arguments: str) -> str:
    """What the interpreter prints with the source of the checkout: both streams."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


def table(columns: Iterable[Mapping[str, int | str]]) -> Iterator[str]:
    """A line for each name, with the figure of each column."""
    named = [*columns]
    names = list(dict.fromkeys(name for column in named for name in column))
    widths = [max(len(str(column.get(name, "-"))) for name in names) for column in named]
    for name in names:
        cells = (str(column.get(name, "-")).ljust(width) for column, width in zip(named, widths, strict=True))
        yield f"{name:<36} {'  |  '.join(cells)}".rstrip()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", metavar="REV", help="also those of this commit, first")
    parser.add_argument("--no-times", action="store_true", help="without CPU times")
    options = parser.parse_args()
    columns = [figures(ROOT, with_times=not options.no_times)]
    if options.base:
        git = ["git", "-C", str(ROOT), "worktree"]
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder) / "base"
            subprocess.run([*git, "add", "--quiet", "--detach", str(base), options.base], check=True)
            try:
                columns.insert(0, figures(base, with_times=not options.no_times))
            finally:
                subprocess.run([*git, "remove", "--force", str(base)], check=True)
    print("\n".join(table(columns)))


if __name__ == "__main__":
    main()
