"""Applies the edits of findings to the files, each tried: its finding is gone and there is no new one."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.documents.formats.inventory import Inventory, inventory_from_objects
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.yaml_edits import STEP, NotEditableError, edited_text
from nodewright.model.errors import InputError
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.lint_run import LintResult

MAX_ROUNDS = 10
"""An edit may make another one possible, and a rejected one leaves its field to the next; that ends by itself after few
rounds."""
_BOM = b"\xef\xbb\xbf"

Relint = Callable[[Mapping[str, bytes]], LintResult]
"""The findings with the contents of these files in place of those that were read."""


class FixedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files that edits changed, and the findings that are gone."""

    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    fixed: tuple[LintFinding, ...]
    result: LintResult
    """The findings that are left."""

    @property
    def found_count(self) -> int:
        """The number of findings before."""
        return len(self.fixed) + len(self.result.findings)

    def diff(self) -> str:
        """The changes as a unified diff."""
        from difflib import unified_diff  # noqa: PLC0415 - start-up time

        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for source, content in self.after.items()
            for line in unified_diff(
                self.before[source].decode().splitlines(keepends=True),
                content.decode().splitlines(keepends=True),
                source,
                source,
            )
        )


def fixed_files(files: Mapping[str, bytes], result: LintResult, relint: Relint) -> FixedFiles:
    """The files with all edits that correct a finding and change nothing else.

    Edits in which the user has to choose a value are left out, and so are files that are not UTF-8.
    """
    fixer = _Fixer(files, relint, result)
    for _ in range(MAX_ROUNDS):
        if not fixer.run_round():
            break
    after = {source: content for source, content in fixer.contents.items() if content != files[source]}
    return FixedFiles(
        before={source: files[source] for source in after},
        after=after,
        fixed=tuple(fixer.fixed),
        result=fixer.result,
    )


def file_contents(inventory: Inventory) -> dict[str, bytes]:
    """The files of the objects, without those that are not as they were read: their broken documents are left out."""
    contents = {entry.location.source: entry.location.content for entry in inventory.objects}
    return {source: content for source, content in contents.items() if _is_on_disk(source, content)}


def _is_on_disk(source: str, content: bytes) -> bool:
    try:
        return read_file(source, max_bytes=len(content)).content == content
    except InputError:
        return False


def edited_inventory(inventory: Inventory, contents: Mapping[str, bytes]) -> Inventory:
    """The same objects, read from other contents of their files.

    Errors: InputError for contents that are no YAML, and for objects that the API server rejects.
    """
    values = {
        (source, document.number): document.value
        for source, content in contents.items()
        for document in parse_documents(content, source)
    }
    objects = []
    for entry in inventory.objects:
        place, value = entry.location, entry.value
        if place.source in contents:
            changed = values[place.source, place.document]
            for key, name in STEP.findall(place.prefix):
                changed = changed[int(key)] if key else changed[name]
            # The items of a typed list do not repeat the kind of the list.
            value = {**{name: value[name] for name in ("apiVersion", "kind") if name in value}, **changed}
            place = replace(place, content=contents[place.source])
        objects.append((value, place))
    return inventory_from_objects(objects, inventory.namespace)


@dataclass
class _Fixer:
    files: Mapping[str, bytes]
    relint: Relint
    result: LintResult
    contents: dict[str, bytes] = field(default_factory=dict)
    fixed: list[LintFinding] = field(default_factory=list)
    rejected: set[tuple[str, str, str]] = field(default_factory=set)

    def run_round(self) -> bool:
        """Whether any edit was applied, or rejected: then those of the same field are tried in the next round."""
        before = len(self.fixed), len(self.rejected)
        self._apply(list(self._candidates()))
        return (len(self.fixed), len(self.rejected)) != before

    def _candidates(self) -> Iterator[LintFinding]:
        """The findings with complete edits; of several that edit one field the first."""
        edited: set[tuple[str, str, str]] = set()
        for finding in self.result.findings:
            source = finding.position.file
            if source not in self.files or _key(finding) in self.rejected or finding.location is None:
                continue
            if not finding.edits or any(edit.needs_value for edit in finding.edits):
                continue
            fields = {(source, finding.subject, edit.path) for edit in finding.edits}
            if not fields & edited:
                edited |= fields
                yield finding

    def _apply(self, findings: Sequence[LintFinding]) -> None:
        """Applies the edits of all; where the findings do not simply vanish, those of each half."""
        if not findings:
            return
        contents, applied = dict(self.contents), []
        for finding in findings:
            source = finding.position.file
            content = contents.get(source, self.files[source])
            try:
                contents[source] = edited_content(content, finding)
            except (NotEditableError, InputError, UnicodeDecodeError):
                self.rejected.add(_key(finding))
            else:
                applied.append(finding)
        if not applied:
            return
        result = self._verified(contents, applied)
        if result is not None:
            self.contents, self.result = contents, result
            self.fixed.extend(applied)
        elif len(applied) == 1:
            self.rejected.add(_key(applied[0]))
        else:
            middle = len(applied) // 2
            self._apply(applied[:middle])
            self._apply(applied[middle:])

    def _verified(self, contents: Mapping[str, bytes], applied: Sequence[LintFinding]) -> LintResult | None:
        """The findings after the edits; None unless exactly those that were applied are gone, or more."""
        try:
            result = self.relint(contents)
        except InputError:
            return None
        before, after = (Counter(map(_key, version.findings)) for version in (self.result, result))
        is_gone = all(after[_key(finding)] < before[_key(finding)] for finding in applied)
        return result if is_gone and not after - before else None


def edited_content(content: bytes, finding: LintFinding) -> bytes:
    """The file with the finding's edits.

    Errors: NotEditableError; UnicodeDecodeError for files that are not UTF-8.
    """
    place = finding.location
    assert isinstance(place, ObjectLocation)
    mark = _BOM if content.startswith(_BOM) else b""
    text = content[len(mark) :].decode()
    for edit in finding.edits:
        path = f"{place.prefix}.{edit.path}" if place.prefix else edit.path
        text = edited_text(text, place.document, path, edit.value)
    return mark + text.encode()


def _key(finding: LintFinding) -> tuple[str, str, str]:
    return finding.rule.id, f"{finding.position.file} {finding.subject}", finding.path
