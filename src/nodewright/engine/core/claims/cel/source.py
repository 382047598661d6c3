"""The errors of an expression, with line, column and a pointer below the text, as Kubernetes prints them."""

_MAX_SNIPPET_BYTES = 16384
_MAX_ERRORS = 100


class FatalError(Exception):
    """The expression is not read further; what is wrong is among the errors."""


class ExpressionErrors:
    """Collects the errors of one expression.

    Follows: v1.36, vendor/github.com/google/cel-go/common/error.go and errors.go.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[tuple[int, int, str]] = []
        self._syntax_errors = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, at: int, message: str) -> None:
        """Adds an error at a position of the text; -1: in front of its first column, where Kubernetes knows none."""
        line = self._text.count("\n", 0, max(at, 0)) + 1
        # Kubernetes finds no column in an empty text.
        column = at - (self._text.rfind("\n", 0, max(at, 0)) + 1) if self._text else -1
        self._found.append((line, column, message))

    def syntax(self, at: int, message: str) -> None:
        """Adds a syntax error.

        Errors: FatalError after a hundred of them.
        """
        self._syntax_errors += 1
        if self._syntax_errors > _MAX_ERRORS:
            self.add(at, f"Syntax error: More than {_MAX_ERRORS} syntax errors")
            raise FatalError
        self.add(at, f"Syntax error: {message}")

    def fatal(self, message: str) -> FatalError:
        """An error of the whole expression, to be raised."""
        self._found.append((-1, -1, message))
        return FatalError(message)

    def __str__(self) -> str:
        shown = sorted(self._found[:_MAX_ERRORS], key=lambda error: error[:2])
        more = len(self._found) - len(shown)
        lines = [self._display(*error) for error in shown]
        return "\n".join([*lines, *([f"{more} more errors were truncated"] if more else [])])

    def _display(self, line: int, column: int, message: str) -> str:
        head = f"ERROR: <input>:{line}:{column + 1}: {message}"
        lines = self._text.split("\n")
        if not self._text or not 1 <= line <= len(lines):
            return head
        snippet = lines[line - 1].replace("\t", " ")
        if len(snippet.encode(errors="replace")) > _MAX_SNIPPET_BYTES:
            return head
        dots = "".join("\uff0e" if character > "\x7f" else "." for character in snippet[: max(column, 0)])
        pointer = "\uff3e" if snippet[max(column, 0) :][:1] > "\x7f" else "^"
        return f"{head}\n | {snippet}\n | {dots}{pointer}"
