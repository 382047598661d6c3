"""Results as JUnit XML, which most CI systems show as a table of tests."""

from collections.abc import Sequence

import msgspec

from nodewright.model.patterns import lazy_pattern

# Characters that XML cannot represent, not even escaped.
_NOT_IN_XML = lazy_pattern("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test; it passed if `failure` is empty."""

    name: str
    failure: str = ""
    """The cause of the failure in one line."""
    details: str = ""
    file: str = ""
    line: int = 0
    """Counted from 1; 0: unknown."""


class JUnitSuite(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of tests."""

    name: str
    cases: tuple[JUnitCase, ...]


def junit_text(suites: Sequence[JUnitSuite]) -> str:
    """The suites as an XML document with a newline at the end.

    >>> text = junit_text([JUnitSuite(name="quota", cases=(JUnitCase(name="a"), JUnitCase(name="b", failure="no <room>")))])
    >>> text.splitlines()[5].strip()
    '<failure message="no &lt;room&gt;"/>'
    """
    cases = [case for suite in suites for case in suite.cases]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', _open("testsuites", "nodewright", cases)]
    for suite in suites:
        lines.append(f"  {_open('testsuite', suite.name, suite.cases)}")
        for case in suite.cases:
            lines.extend(_case(suite.name, case))
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _open(tag: str, name: str, cases: Sequence[JUnitCase]) -> str:
    failures = sum(bool(case.failure) for case in cases)
    return f'<{tag} name={_attribute(name)} tests="{len(cases)}" failures="{failures}">'


def _case(suite: str, case: JUnitCase) -> list[str]:
    tag = f"    <testcase classname={_attribute(suite)} name={_attribute(case.name)}"
    if case.file:
        tag += f" file={_attribute(case.file)}"
    if case.line:
        tag += f' line="{case.line}"'
    if not case.failure:
        return [f"{tag}/>"]
    failure = f"      <failure message={_attribute(case.failure)}"
    if case.details:
        text = _NOT_IN_XML.sub("\ufffd", case.details).replace("]]>", "]]]]><![CDATA[>")
        failure += f"><![CDATA[{text}]]></failure>"
    else:
        failure += "/>"
    return [f"{tag}>", failure, "    </testcase>"]


def _attribute(text: str) -> str:
    from xml.sax.saxutils import quoteattr  # noqa: PLC0415 - imports an HTTP client

    return quoteattr(_NOT_IN_XML.sub("\ufffd", text), {"\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})
