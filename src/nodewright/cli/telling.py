"""Findings with their places and texts, but for those that people do not want to be told."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodewright.cli.linting import Question
from nodewright.lint.findings import Found, Rule
from nodewright.lint.ignores import ANNOTATION, Ignore, annotated, commented
from nodewright.lint.rules import BY_ID, UNUSED_IGNORE, Selection, findings
from nodewright.lint.subjects import PodSubject, Subject
from nodewright.render.findings import Spot
from nodewright.render.lint.report import Told
from nodewright.render.lint.words import finding_text, fix_text
from nodewright.world.documents import decode_text
from nodewright.world.places import Place

MARK = b"nodewright:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What linting came to."""

    told: tuple[Told, ...]
    """In the order of the files and their lines."""
    subjects: tuple[tuple[str, Place], ...]
    """The objects that were looked at, and where they stand."""
    rules: tuple[Rule, ...]
    """The rules that were looked for."""


def outcome(question: Question, selection: Selection) -> Outcome:
    """What the wanted rules find, without what is ignored, and with the ignores that keep nothing back."""
    rules = selection.rules(with_nodes=bool(question.around.nodes))
    ignores = _Ignores.of(question, rules)
    # A configuration that several nodes have is looked at for each, and told once.
    told = {
        _key(one): one for one, subject in _told(question, selection) if not ignores.keep_back(one, subject)
    }
    if selection.has(UNUSED_IGNORE):
        rules = (UNUSED_IGNORE, *rules)
        told |= {_key(one): one for one in ignores.unused()}
    order = {source: number for number, source in enumerate(question.files)}
    return Outcome(
        told=tuple(sorted(told.values(), key=lambda one: (order[one.spot.file], *_key(one)))),
        subjects=tuple((_label(one), question.places[one.number]) for one in question.subjects),
        rules=rules,
    )


def _key(told: Told) -> tuple[int, int, str, str, str, str]:
    spot = told.spot
    return spot.line, spot.column, told.rule.id, told.subject, told.text, spot.file


def _told(question: Question, selection: Selection) -> Iterator[tuple[Told, Subject]]:
    for finding in findings(question.subjects, question.around, selection):
        found, subject = finding.found, finding.subject
        one = Told(
            rule=finding.rule,
            spot=spot_of(question.places[subject.number], found.path),
            subject=_label(subject),
            path=found.path,
            text=finding_text(finding.rule, found),
            fix=fix_text(found.edits),
            facts=found.facts,
            edits=found.edits,
        )
        yield one, subject


def _label(subject: Subject) -> str:
    return f"{subject.kind} {subject.full_name}"


def spot_of(place: Place, path: str = "") -> Spot:
    """Where the field of an object stands, or the object."""
    line, column = place.spot(path) or (0, 0)
    return Spot(file=place.source, line=line, column=column)


@dataclass
class _Ignores:
    """All ignores of the files, and those of them that have kept something back."""

    question: Question
    ran: frozenset[str]
    """The rules that were looked for."""
    comments: Mapping[str, tuple[Ignore, ...]]
    used: set[tuple[str | int, Ignore | str]] = field(default_factory=set)

    @classmethod
    def of(cls, question: Question, rules: Iterable[Rule]) -> "_Ignores":
        """What the files say."""
        comments = {
            source: commented(decode_text(content, source))
            for source, content in question.files.items()
            if MARK in content or not content.isascii()
        }
        return cls(question, frozenset(rule.id for rule in rules), comments)

    def keep_back(self, told: Told, subject: Subject) -> bool:
        """Whether somebody does not want to be told."""
        rule, spot = told.rule.id, told.spot
        hits: set[tuple[str | int, Ignore | str]] = {
            (spot.file, one) for one in self.comments.get(spot.file, ()) if one.covers(rule, spot.line)
        }
        if rule in _annotations(subject):
            hits.add((subject.number, rule))
        self.used |= hits
        return bool(hits)

    def unused(self) -> Iterator[Told]:
        """What keeps nothing back, of the rules that were looked for; and what is no rule."""
        for source, ignores in self.comments.items():
            for one in ignores:
                if (source, one) not in self.used and self._counts(one.rule):
                    yield _unused(one.rule, Spot(file=source, line=one.line), "comment")
        for subject in self.question.subjects:
            for rule in _annotations(subject):
                if (subject.number, rule) not in self.used and self._counts(rule):
                    spot = spot_of(
                        self.question.places[subject.number], f"metadata.annotations[{ANNOTATION}]"
                    )
                    yield _unused(rule, spot, _label(subject))

    def _counts(self, rule: str) -> bool:
        return rule in self.ran or rule not in BY_ID


def _unused(rule: str, spot: Spot, subject: str) -> Told:
    what = "take the ignore away" if rule in BY_ID else "there is no such rule"
    found = Found(path="", facts={"rule": rule, "what": what})
    return Told(
        rule=UNUSED_IGNORE,
        spot=spot,
        subject=subject,
        path="",
        text=finding_text(UNUSED_IGNORE, found),
        facts=found.facts,
    )


def _annotations(subject: Subject) -> tuple[str, ...]:
    """The rules that the object's annotations name, or those of its pod template."""
    meta = subject.document.get("metadata")
    own = meta.get("annotations") if isinstance(meta, dict) else None
    named = annotated(own) if isinstance(own, dict) else ()
    if isinstance(subject, PodSubject):
        named += annotated(subject.written.metadata.annotations)
    return tuple(dict.fromkeys(named))
