"""From an expression's text to its tree, with the syntax errors of Kubernetes.

Each rule of the grammar is a method; what may follow it stands on a stack, because messages list what they expect.

Follows: v1.36, vendor/github.com/google/cel-go/parser/{parser.go,unescape.go,gen/CEL.g4}; ANTLR 4, error_strategy.go.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from nodewright.engine.core.claims.cel.expression import MacroError, Node, expanded
from nodewright.engine.core.claims.cel.source import ExpressionErrors, FatalError
from nodewright.engine.core.claims.cel.values import UInt, fits

_MAX_NESTING = 100
_MAX_LEVELS = 200
_MAX_DIGITS = 24  # more than any number has that fits
_MAX_RECOVERIES = 30
_EOF = "<EOF>"
_END = ""
"""In a set of tokens: the rule may end there."""
_TEXT_OF_TOKENS = (
    "<EOF> == != in < <= >= > && || [ ] { } ( ) . , - ! ? : + * / % true false null"
    " NUM_FLOAT NUM_INT NUM_UINT STRING BYTES IDENTIFIER ESC_IDENTIFIER"
)
_ORDER = {name: number for number, name in enumerate(_TEXT_OF_TOKENS.split())}
_LITERALS = frozenset(list(_ORDER)[1:29])
_TEXT_OF_LEVELS = (("||", 0), ("&&", 1), ("== != in < <= >= >", 2), ("+ -", 3), ("* / %", 4))
_LEVELS = {name: level for names, level in _TEXT_OF_LEVELS for name in names.split()}
_START = frozenset(("[", "{", "(", ".", "-", "!", *list(_ORDER)[26:35]))
_PRIMARY = _START - {"!"}
_NAMES = ("IDENTIFIER", "ESC_IDENTIFIER")
_SIGNED = ("NUM_INT", "NUM_FLOAT")
_WORDS = (
    "as break const continue else for function if import let loop package namespace return var void while"
)
_RESERVED = frozenset(_WORDS.split())
_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_QUOTED = (
    rf'"""(?:{_ESCAPE}|[^\\])*?"""|' rf"'''(?:{_ESCAPE}|[^\\])*?'''|" r'[rR]"""(?s:.*?)"""|' r"[rR]'''(?s:.*?)'''|"
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*"|' rf"'(?:{_ESCAPE}|[^\\'\n\r])*'|" r'[rR]"[^"\n\r]*"|' r"[rR]'[^'\n\r]*'"
)  # fmt: skip
_TOKEN = re.compile(
    rf"""(?P<HIDDEN>[\t \r\n\f]+|//[^\n]*)|(?P<STRING>{_QUOTED})|(?P<BYTES>[bB](?:{_QUOTED}))"""
    r"""|(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])|(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)"""
    r"""|(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)|(?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/ ]+`)"""
    r"""|(?P<LITERAL>==|!=|<=|>=|&&|\|\||[\[\]{}().,\-!?:+*/%<>])"""
)
# What a token could begin with; the character behind it is part of the text that the error shows.
_ESCAPE_PREFIX = r"(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?)?"
_PREFIX = re.compile(
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*{_ESCAPE_PREFIX}|'
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*{_ESCAPE_PREFIX}|"
    r"`[A-Za-z0-9_.\-/ ]*|[=&|]|"
)


class Token(NamedTuple):
    """A token, and where it begins in the text."""

    type: str
    text: str
    at: int


class _UnexpectedTokenError(Exception):
    """The rule cannot be read on."""

    def __init__(self, place: object, message: str, token: Token) -> None:
        self.place, self.message, self.token = place, message, token


def parse(text: str, errors: ExpressionErrors) -> Node:
    """The tree of an expression.

    Errors:  FatalError where it is not read to its end; what is wrong is added to `errors`.
    Departs: nested more than 100 levels, or a tree of more than 200, is an error; Kubernetes goes to 250.
    """
    return _Parser(text, errors).start()


def _tokens(text: str, errors: ExpressionErrors) -> Iterator[Token]:
    """The tokens of an expression and its end, blanks among them; what is no token is an error and left out."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            prefix = _PREFIX.match(text, at)
            end = (prefix.end() if prefix else at) + 1
            errors.syntax(at, f"token recognition error at: '{text[at:end]}'")
        else:
            end, kind = match.end(), str(match.lastgroup)
            yield Token(match[0] if kind == "LITERAL" or match[0] in _LITERALS else kind, match[0], at)
        at = end
    yield Token(_EOF, _EOF, len(text))


class _Parser:
    """Reads tokens into a tree; errors are reported and recovered from as ANTLR's default strategy does."""

    def __init__(self, text: str, errors: ExpressionErrors) -> None:
        self._errors, self._all = errors, list(_tokens(text, errors))
        self._tokens = [token for token in self._all if token.type != "HIDDEN"]
        self._position = self._recoveries = self._nesting = 0
        self._is_recovering = False
        self._last_error: tuple[int, set[object]] = (-1, set())
        self._follow: list[frozenset[str]] = []

    # ------------------------------------------------------------ tokens and errors

    def _token(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._token()
        self._is_recovering, self._last_error = False, (-1, set())
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return token

    @contextmanager
    def _rule(self, *follow: str) -> Iterator[None]:
        """A rule, behind which these tokens may come; it ends at a token that does not suit it."""
        self._follow.append(frozenset(follow))
        try:
            yield
        except _UnexpectedTokenError as error:
            self._report(error.message, error.token)
            self._recover(error.place)
        self._follow.pop()

    def _recover(self, place: object) -> None:
        self._count_recovery()
        position, places = self._last_error
        if position == self._position and place in places:
            self._position = min(self._position + 1, len(self._tokens) - 1)
        self._last_error = (self._position, {*places, place})
        self._skip_to(frozenset().union(*self._follow))

    def _skip_to(self, tokens: frozenset[str]) -> None:
        while self._token().type not in (*tokens, _EOF):
            self._position += 1

    def _count_recovery(self) -> None:
        self._recoveries += 1
        if self._recoveries > _MAX_RECOVERIES:
            message = f"error recovery attempt limit exceeded: {_MAX_RECOVERIES}"
            self._errors.syntax(self._token().at, message)
            raise FatalError(message)

    def _report(self, message: str, token: Token) -> None:
        if not self._is_recovering:
            self._is_recovering = True
            self._errors.syntax(token.at, message)

    def _expected(self, tokens: Iterable[str]) -> frozenset[str]:
        """The tokens that may come, those behind the rule among them where it may end."""
        expected = frozenset(tokens)
        for follow in reversed(self._follow):
            if _END in expected:
                expected = expected - {_END} | follow
        return expected

    def _message(self, problem: str, expected: frozenset[str]) -> str:
        return f"{problem} {_quoted(self._token().text)} expecting {_set_text(expected)}"

    def _mismatch(self, expected: frozenset[str], place: str = "") -> _UnexpectedTokenError:
        return _UnexpectedTokenError(
            (expected, place), self._message("mismatched input", expected), self._token()
        )

    def _no_alternative(self, rule: str, ahead: int) -> _UnexpectedTokenError:
        start, offending = self._token(), self._token(ahead)
        shown = (token.text for token in self._all[:-1] if start.at <= token.at <= offending.at)
        text = "".join(shown) or _EOF
        message = f"no viable alternative at input {_quoted(text)}"
        if text in (".true", ".false", ".null"):
            message = f"mismatched input '{offending.text}' expecting IDENTIFIER"
        return _UnexpectedTokenError(rule, message, offending)

    def _delete_token(self, expected: frozenset[str]) -> bool:
        """Whether the token was one too many."""
        is_extra = self._token(1).type in expected
        if is_extra:
            self._report(self._message("extraneous input", expected), self._token())
            self._take()
        return is_extra

    def _match(self, token_type: str, after: Iterable[str], place: str = "") -> Token:
        """Reads a token; an extra one in front of it is left out, a missing one is made up."""
        token, expected = self._token(), frozenset([token_type])
        if token.type != token_type:
            self._count_recovery()
            if not self._delete_token(expected):
                if token.type not in self._expected(after):
                    raise self._mismatch(expected, place)
                self._report(f"missing {_set_text(expected)} at {_quoted(token.text)}", token)
                return token
        return self._take()

    def _synchronize(self, *tokens: str, is_loop: bool = False) -> None:
        """Reports a token that nothing here expects; in a loop, what cannot be used is skipped."""
        expected = frozenset(tokens)
        if self._is_recovering or self._token().type in expected:
            return
        if is_loop:
            self._report(self._message("extraneous input", expected), self._token())
            self._skip_to(expected.union(*self._follow))
        elif not self._delete_token(expected):
            raise self._mismatch(expected)

    # ------------------------------------------------------------ operators

    def start(self) -> Node:
        """The whole expression."""
        node = self._expr(_EOF)
        with self._rule():
            self._match(_EOF, [_EOF])
        return node

    def _expr(self, *follow: str) -> Node:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise self._errors.fatal(f"nested too deeply: more than {_MAX_NESTING} levels")
        node = Node("error", -1)
        with self._rule(*follow):
            node = self._operation("?", _END)
            if self._token().type == "?":
                condition, question = node, self._take()
                node = Node("call", question.at, [condition], name="_?_:_")
                first = self._operation(":")
                self._match(":", _START)
                node = Node("call", question.at, [condition, first, self._expr(_END)], name="_?_:_")
        self._nesting -= 1
        if node.depth > _MAX_LEVELS:
            raise self._errors.fatal(f"nested too deeply: more than {_MAX_LEVELS} levels")
        return node

    def _operation(self, *follow: str) -> Node:
        """Operands and binary operators."""
        operands, operators = [self._unary(*_LEVELS, *follow)], list[Token]()
        while self._token().type in _LEVELS:
            _reduce(operands, operators, _LEVELS[self._token().type])
            operators.append(self._take())
            operands.append(self._unary(*_LEVELS, *follow))
        _reduce(operands, operators, -1)
        return operands[0]

    def _unary(self, *follow: str) -> Node:
        node, at, signs = Node("error", -1), 0, ""
        with self._rule(*follow):
            self._synchronize(*_START)
            sign, at = self._token().type, self._token().at
            if sign not in _START:
                raise self._no_alternative("unary", 0)
            if sign == "!":
                while self._token().type == "!":
                    signs += self._take().type
                    self._synchronize(*_START, is_loop=True)
            elif sign == "-" and self._token(1).type not in _SIGNED:
                while self._token().type == "-":
                    if self._token(1).type not in _PRIMARY:
                        raise self._no_alternative(f"unary{bool(signs)}", 1)
                    signs += self._take().type
            node = self._member()
        return Node("call", at, [node], name=f"{signs[0]}_") if len(signs) % 2 else node

    # ------------------------------------------------------------ members and literals

    def _member(self) -> Node:
        node = Node("error", -1)
        with self._rule(_END):
            node = self._primary()
            while (operator := self._token()).type in (".", "["):
                if operator.type == "." and self._token(1).type not in ("?", *_NAMES):
                    raise self._no_alternative("member", 1)
                is_call = (operator.type, self._token(1).type, self._token(2).type) == (
                    ".",
                    "IDENTIFIER",
                    "(",
                )
                target, node = node, Node("error", self._token(2 * is_call).at)
                node = self._step(target, self._take())
        return node

    def _step(self, node: Node, operator: Token) -> Node:
        """One selection, call or index of a member."""
        if operator.type == "[":
            is_optional = self._question(*_START)
            node = self._call(operator.at, "_[?_]" if is_optional else "_[_]", [node, self._expr("]")])
            self._match("]", (".", "[", _END))
            return node
        if (self._token().type, self._token(1).type) == ("IDENTIFIER", "("):
            return self._arguments(self._take().text, node, ".", "[", _END)
        is_optional = self._question(*_NAMES)
        name_at, name = self._token().at, self._escaped_name(".", "[", _END)
        if is_optional:
            return Node("call", operator.at, [node, Node("literal", name_at, value=name)], name="_?._")
        return Node("select", operator.at, target=node, name=name)

    def _question(self, *others: str) -> bool:
        """Whether a question mark comes in front of these tokens."""
        self._synchronize("?", *others)
        return self._token().type == "?" and self._take().type == "?"

    def _escaped_name(self, *follow: str) -> str:
        name, start = "", self._token().at
        with self._rule(*follow):
            self._synchronize(*_NAMES)
            if self._token().type not in _NAMES:
                raise self._no_alternative("name", 0)
            at, name = self._token().at, self._take().text
            if name[0] == "`":
                self._errors.add(at, "unsupported syntax: '`'")
        if not name:
            self._errors.add(start, "unsupported ident kind")
        return name

    def _arguments(self, name: str, target: Node | None, *after: str) -> Node:
        """The call of a function with the arguments in parentheses."""
        at, args = self._take().at, list[Node]()
        self._synchronize(*_START, ")")
        if self._token().type in _START:
            args.append(self._expr(",", ")"))
            while self._token().type == ",":
                self._take()
                args.append(self._expr(",", ")"))
        node = self._call(at, name, args, target)
        self._match(")", after)
        return node

    def _primary(self) -> Node:
        node = Node("error", -1)
        with self._rule(".", "[", _END):
            self._synchronize(*_PRIMARY)
            kind, at = self._token().type, self._token().at
            if kind in ("IDENTIFIER", "."):
                return self._named(at)
            if kind == "-" and self._token(1).type not in _SIGNED:
                raise self._no_alternative("primary", 1)
            if kind not in _PRIMARY:
                raise self._no_alternative("primary", 0)
            token = self._take()
            if kind == "(":
                node = self._expr(")")
                self._match(")", [_END])
                return node
            if kind in "[{":
                return self._collection("list" if kind == "[" else "map", at)
            sign = token.text * (kind == "-")
            token = self._take() if sign else token
            try:
                return Node("literal", at, value=_VALUES[token.type](sign + token.text))
            except ValueError as error:
                self._errors.add(at, str(error))
        return node

    def _named(self, at: int) -> Node:
        """A name, a call or a message."""
        prefix = int(self._token().type == ".")
        if self._token(prefix).type != "IDENTIFIER":
            raise self._no_alternative("primary", 1)
        end = prefix + 1
        while (self._token(end).type, self._token(end + 1).type) == (".", "IDENTIFIER"):
            end += 2
        if self._token(end).type == "{":
            name = "".join(self._take().text for _ in range(end))
            return self._collection("message", self._take().at, name)
        dot = self._take().text if prefix else ""
        token = self._take()
        node = Node("ident", token.at, name=dot + token.text)
        if self._token().type == "(":
            node = self._arguments(node.name, None, _END)
        if token.text in _RESERVED:
            self._errors.add(at, f"reserved identifier: {token.text}")
            return Node("error", at)
        return node

    def _collection(self, kind: str, at: int, name: str = "") -> Node:
        """A list, map or message, whose opening bracket was read."""
        parts, optional = list[Node](), frozenset[int]()
        with self._rule(_END):
            parts, optional = self._entries("]" if kind == "list" else "}", is_message=kind == "message")
        return Node(kind, at, parts[1::2] if name else parts, name=name, optional=optional)

    def _entries(self, closing: str, *, is_message: bool = False) -> tuple[list[Node], frozenset[int]]:
        """The elements, or keys and values, up to a closing bracket; and which of them are optional."""
        starts = _NAMES if is_message else _START
        parts, optional, count = list[Node](), set[int](), 0
        self._synchronize("?", *starts, ",", closing)
        with self._rule(",", closing):
            while self._token(bool(count)).type in ("?", *starts) and (
                count < 1 or self._token().type == ","
            ):
                if count:
                    self._take()
                parts.append(Node("error", -1))
                with self._rule(*((":",) if closing == "}" else (",", _END))):
                    if self._question(*starts):
                        optional.add(count)
                    parts[-1] = (
                        Node("name", 0, name=self._escaped_name(_END)) if is_message else self._expr(_END)
                    )
                if closing == "}":
                    self._match(":", _START, "entry")
                    parts.append(self._expr(",", _END))
                count += 1
        self._synchronize(",", closing)
        if self._token().type == ",":
            self._take()
        self._match(closing, [_END])
        return parts, frozenset(optional)

    def _call(self, at: int, name: str, args: list[Node], target: Node | None = None) -> Node:
        """A call, or what its macro expands to."""
        try:
            return expanded(at, name, args, target)
        except MacroError as error:
            self._errors.add(error.at, error.message)
            return Node("error", error.at)


def _reduce(operands: list[Node], operators: list[Token], level: int) -> None:
    """Makes calls of the operators that bind more than the level; rows of `&&` and `||` become balanced trees."""
    while operators and (top := _LEVELS[operators[-1].type]) >= level and (top > level or level > 1):
        count = 1
        while top < 2 and len(operators) > count and _LEVELS[operators[-count - 1].type] == top:
            count += 1
        operands[-count - 1 :] = [_balanced(operands[-count - 1 :], operators[-count:])]
        del operators[-count:]


def _balanced(terms: list[Node], operators: list[Token]) -> Node:
    if not operators:
        return terms[0]
    middle = len(operators) // 2
    left = _balanced(terms[: middle + 1], operators[:middle])
    right = _balanced(terms[middle + 1 :], operators[middle + 1 :])
    token = operators[middle]
    return Node("call", token.at, [left, right], name="@in" if token.type == "in" else f"_{token.type}_")


def _quoted(text: str) -> str:
    escaped = text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def _set_text(tokens: frozenset[str]) -> str:
    names = [
        f"'{token}'" if token in _LITERALS else token for token in sorted(tokens, key=_ORDER.__getitem__)
    ]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


# ---------------------------------------------------------------- literals


def _number(text: str, kind: str) -> int:
    digits = text.lstrip("-")
    base = 16 if digits.startswith("0x") else 10
    number = int(digits.removeprefix("0x").lstrip("0")[:_MAX_DIGITS] or "0", base) * (
        -1 if text[0] == "-" else 1
    )
    if not (fits(number) if kind == "int" else number < 2**64):
        raise ValueError(f"invalid {kind} literal")
    return number


def _double(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError("invalid double literal")
    return number


_ESCAPED = re.compile(rb"\\(?:[xX](..)|u(....)|U(........)|([0-3]..)|(.))", re.DOTALL)
_SIMPLE_ESCAPES = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def _string_bytes(text: str, *, is_bytes: bool = False) -> bytes:
    """The bytes of a literal in UTF-8.

    Errors: ValueError for a character that is none.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = text[0] in "rR"
    text = text[is_raw:]
    quotes = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    raw = text[quotes:-quotes].encode()
    return raw if is_raw else _ESCAPED.sub(lambda match: _unescaped(match, is_bytes=is_bytes), raw)


def _unescaped(match: re.Match[bytes], *, is_bytes: bool) -> bytes:
    short, unicode, long, octal, simple = match.groups()
    if simple:
        return bytes([_SIMPLE_ESCAPES.get(simple[0], simple[0])])
    if is_bytes and (unicode or long):
        raise ValueError("unable to unescape string")
    code = int(octal, 8) if octal else int(short or unicode or long, 16)
    if is_bytes:
        return bytes([code & 255])
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError("invalid unicode code point")
    return chr(code).encode()


_VALUES: dict[str, Callable[[str], Any]] = {
    "NUM_INT": lambda text: _number(text, "int"),
    "NUM_UINT": lambda text: UInt(_number(text[:-1], "uint")),
    "NUM_FLOAT": _double,
    "STRING": lambda text: _string_bytes(text).decode(),
    "BYTES": lambda text: _string_bytes(text[1:], is_bytes=True),
    "true": lambda _: True,
    "false": lambda _: False,
    "null": lambda _: None,
}
