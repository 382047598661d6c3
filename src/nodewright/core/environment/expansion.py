"""References to variables in texts: `$(NAME)`, and `$$(NAME)` for the same letters unexpanded."""

import re
from collections.abc import Callable, Mapping

_OPERATOR = re.compile(r"\$(?:(\$)|\(([^)]*)\)|(\(|.|$))", re.DOTALL)


def expand(text: str, value_of: Callable[[str], str]) -> str:
    """The text with every reference replaced by what ``value_of`` gives for its name; values are not expanded again.

    `$$` stands for `$`; whatever else follows a `$` is left with it as it is, a reference that is never closed too.

    Follows: v1.36, third_party/forked/golang/expansion/expand.go, Expand.
    Departs: a character beyond ASCII right after a `$` stays whole, where Kubernetes mistakes its first byte for
        a character.

    >>> expand("$(A)-$$(A)-$(", str.lower)
    'a-$(A)-$('
    """

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        return value_of(found[2]) if found[2] is not None else found[0]

    return _OPERATOR.sub(replaced, text)


def expanded(text: str, *values: Mapping[str, str]) -> str:
    """The text with references replaced by the first of ``values`` that has them; those that none has stay.

    Follows: v1.36, third_party/forked/golang/expansion/expand.go, MappingFuncFor.

    >>> expanded("$(A) $(B) $(C)", {"A": "1"}, {"A": "2", "B": "3"})
    '1 3 $(C)'
    """

    def value_of(name: str) -> str:
        return next((known[name] for known in values if name in known), f"$({name})")

    return expand(text, value_of)
