"""Regular expressions that are compiled at their first use: a command uses few of those that its modules define.

To compile one takes as long as to import a small module. What every command uses calls `re.compile`.
"""

import re
from typing import Any, AnyStr, Generic, cast


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` returns, compiled when a method of it is called for the first time.

    Errors: re.error then, where the text is no regular expression.

    >>> lazy_pattern("[0-9]+").fullmatch("12") is not None
    True
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))


class _LazyPattern(Generic[AnyStr]):
    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """A method or attribute of the compiled pattern; it is kept, so that the next call finds it at once."""
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value
