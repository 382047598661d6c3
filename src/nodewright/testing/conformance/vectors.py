"""Files of recorded decisions: JSON lines, gzipped or not, each with a question and usually an answer.

The families of recorded decisions, and the dispatch of questions to the engine. The vectors of a release are those of RECORDED with
the answers in which that release differs: beside the vectors, or one folder up, is a folder `releases/R`, where `<family>.jsonl.gz`
has these answers, and `skipped.json` the ids of questions that the release cannot be asked.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from nodewright.documents.files.regular_files import error_text
from nodewright.documents.profiles.catalogue import recorded_machines
from nodewright.model.errors import JSON_ERRORS, Fault, HostError, InputError
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.reasons.predicates import InsufficientResource, PredicateFailure
from nodewright.model.releases.feature_gates import FeatureGates, gates_set
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.quantity import Quantity
from nodewright.version import recordings_command

T = TypeVar("T")

RECORDED = RELEASE_TABLES["1.36"]
"""The release whose answers vectors have that name none."""
STANDARD_STREAM = "-"
RELEASES_TEXT = ", ".join(RELEASE_TABLES)
MAX_VECTOR_BYTES = 64 << 20
"""Characters of a file of vectors when it is unpacked; the largest recorded one has a third of it."""
_MAX_LINE = 8 << 20
_LINE_COST = 64
"""What an empty line counts, so that their number is bounded as well."""


class NotRecorded(Enum):
    """The expected value of a question without a recorded answer."""

    NOT_RECORDED = "(not recorded)"


NOT_RECORDED = NotRecorded.NOT_RECORDED


class Vector(msgspec.Struct, frozen=True):
    """A question, and Kubernetes' answer or NOT_RECORDED."""

    id: str
    family: str
    question: dict[str, Any]
    expect: Any = NOT_RECORDED
    release: str = ""
    """The release that is asked, of those with rules; empty: not named."""

    @property
    def is_recorded(self) -> bool:
        """Whether there is an answer to compare with."""
        return self.expect is not NOT_RECORDED


def recorded_sample() -> Path:
    """The file with some recorded decisions of every family and release, of the package nodewright-recordings.

    Errors: HostError where that is not installed.
    """
    spec = find_spec("nodewright_recordings")
    if spec is None or spec.origin is None:
        rule = f"the package nodewright-recordings is not installed: {recordings_command()}, or name a FILE"
        raise HostError("open", "the recorded decisions", rule)
    return Path(spec.origin).parent / "sample.jsonl.gz"


def read_vectors(
    paths: Iterable[str], first_places: dict[tuple[str, str], str] | None = None
) -> Iterator[Vector | Fault]:
    """The vectors of the files in order; a malformed line, or a repeated id, gives a fault instead.

    A path is a file of JSON lines, packed where its name ends in `.gz`, or `-` for standard input. The
    remark `input.tag` is left out: it is for readers and may tell about the answer. ``first_places`` collects where
    each id and release was first, for several calls that share them.
    """
    first_places = {} if first_places is None else first_places
    for path in paths:
        for place, line in numbered_lines(path):
            vector = line if isinstance(line, Fault) else _vector(place, line)
            if isinstance(vector, Vector) and (first := first_places.get((vector.id, vector.release))):
                rule = f"id occurs twice, first at {first}"
                yield Fault(source=place, path="id", value=vector.id, rule=rule)
                continue
            if isinstance(vector, Vector):
                first_places[vector.id, vector.release] = place
            yield vector


def read_machines(path: str | None = None) -> Mapping[str, Any]:
    """Machines by name, from the file or, without one, from the package.

    Errors: InputError where the file is no JSON object of objects.
    """
    if path is None:
        return recorded_machines()
    try:
        with open_text(path) as lines:
            text = lines.read(MAX_VECTOR_BYTES + 1)
        if len(text) > MAX_VECTOR_BYTES:
            rule = f"has more than {MAX_VECTOR_BYTES} characters, which is the limit"
            raise InputError([Fault(source=path, rule=rule)])
        machines = json.loads(text)
    except (OSError, ValueError, RecursionError, EOFError, zlib.error) as error:
        raise InputError([Fault(source=path, rule=f"not JSON: {error_text(error)}")]) from error
    if not isinstance(machines, dict) or not all(isinstance(machine, dict) for machine in machines.values()):
        raise InputError(
            [Fault(source=path, rule="must be an object: names of machines to MachineInfo objects")]
        )
    return machines


@contextmanager
def open_text(path: str) -> Iterator[IO[str]]:
    """The file opened as text, unpacked if its name ends in `.gz`; `-` is standard input."""
    if path == STANDARD_STREAM:
        yield sys.stdin
    elif path.endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8") as packed:
            yield packed
    else:
        with open(path, encoding="utf-8") as plain:  # noqa: PTH123 - the same call as its packed twin
            yield plain


def numbered_lines(path: str) -> Iterator[tuple[str, str | Fault]]:
    """The lines of a file that are not blank, each with its place; a fault where the file cannot be read or is too large."""
    number = 0
    try:
        with open_text(path) as lines:
            unread = MAX_VECTOR_BYTES
            while line := lines.readline(_MAX_LINE):
                number += 1
                unread -= len(line) + _LINE_COST
                if len(line) == _MAX_LINE or unread < 0:
                    place = f"{path}:{number}"
                    rule = f"has more than {_MAX_LINE if unread >= 0 else MAX_VECTOR_BYTES} characters, the limit"
                    yield place, Fault(source=place if unread >= 0 else path, rule=rule)
                    return
                if line.strip():
                    yield f"{path}:{number}", line
    except (OSError, EOFError, zlib.error, ValueError) as error:
        place = f"{path}:{number + 1}"
        yield place, Fault(source=place, rule=f"cannot be read on from here: {error_text(error)}")


def _vector(place: str, line: str) -> Vector | Fault:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Fault(source=place, rule=f"not JSON: {error}")
    if not isinstance(document, dict):
        return Fault(source=place, rule="must be an object with id, family and input")
    for member, kind, name in (("id", str, "text"), ("family", str, "text"), ("input", dict, "object")):
        if not isinstance(document.get(member), kind):
            return Fault(
                source=place, path=member, value=document.get(member), rule=f"must be there and be {name}"
            )
    release = document.get("release", "")
    if release and release not in RELEASE_TABLES:
        return Fault(source=place, path="release", value=release, rule=f"must be one of {RELEASES_TEXT}")
    question = {name: value for name, value in document["input"].items() if name != "tag"}
    return Vector(document["id"], document["family"], question, document.get("expect", NOT_RECORDED), release)


FAMILIES = (
    "quantity",
    "pod-defaults",
    "pod-resources",
    "oom-score",
    "cgroup",
    "container-cgroup",
    "node-allocatable",
    "quota",
    "limitrange",
    "cpu-topology",
    "cpu-assign",
    "cpu-manager",
    "memory-manager",
    "device-manager",
    "topology-merge",
    "checkpoint",
    "predicates",
    "preemption",
    "eviction",
    "kubelet-config",
    "node",
)
"""The families recorded of all releases, in the order of reports: from quantities to the whole node."""

CLAIM_FAMILIES = ("dra-cel", "dra-allocate", "dra-why", "dra-schedule", "dra-kubelet")
"""Families of Dynamic Resource Allocation: of RECORDED, allocation of the two releases before as well."""
MEMBERS_OF_RECORDED = {"dra-allocate": ("pools", "onlyThisNode")}
"""Members of answers that only RECORDED has."""
ALL_FAMILIES = (*FAMILIES, *CLAIM_FAMILIES)


class UnansweredFamilyError(LookupError):
    """The family is not supported."""


def answer_family(
    family: str, question: dict[str, Any], machines: Mapping[str, Any], release: ReleaseTable = RECORDED
) -> Any:
    """The engine's answer for a release to a question of the family, as plain JSON in the shape of `expect`.

    Errors: UnansweredFamilyError where the family is unknown or nothing answers it yet; what the engine raises is passed on.
    """
    return import_module(_engine(family)).answer(question, machines, release)


def is_answered(family: str) -> bool:
    """Whether the family is supported."""
    return family in ALL_FAMILIES and find_spec(_module(family)) is not None


def _engine(family: str) -> str:
    if family not in ALL_FAMILIES:
        raise UnansweredFamilyError(f"unknown family {family!r}; known are {', '.join(ALL_FAMILIES)}")
    if not is_answered(family):
        raise UnansweredFamilyError(f"family {family} is not answered yet")
    return _module(family)


def _module(family: str) -> str:
    return f"{__package__}.{family.replace('-', '_')}"


def vectors_of_release(paths: Iterable[str], release: str) -> Iterator[Vector | Fault]:
    """The vectors of the files for this release; those recorded for another one are left out.

    Errors: InputError for recorded vectors that have no folder of this release beside them.
    """
    first_places: dict[tuple[str, str], str] = {}
    for path in paths:
        yield from answered_by_release(path, read_vectors([path], first_places), release)


def answered_by_release(
    path: str, vectors: Iterable[Vector | Fault], release: str
) -> Iterator[Vector | Fault]:
    """The vectors of the file that are for this release, with its answers; it is `vectors_of_release` for vectors already read.

    Errors: InputError for recorded vectors that have no folder of this release beside them.
    """
    folder = None if release == RECORDED.name else _folder(path, release)
    recorded: RecordedRelease | None = None
    for vector in vectors:
        if isinstance(vector, Fault):
            yield vector
        elif vector.release:
            if vector.release == release:
                yield vector
        elif release == RECORDED.name or not vector.is_recorded:
            yield msgspec.structs.replace(vector, release=release)
        elif folder is None:
            rule = f"no folder releases/{release} beside it or one folder up: its answers are those of {RECORDED.name}"
            raise InputError([Fault(source=path, rule=rule)])
        else:
            recorded = recorded or RecordedRelease(folder)
            if vector.id not in recorded.skipped:
                named = recorded.answers(Path(path).name.partition(".")[0])
                answers = named or recorded.answers(vector.family)
                expect = answers.get(vector.id, vector.expect)
                for name in MEMBERS_OF_RECORDED.get(vector.family, ()):
                    expect = {member: value for member, value in expect.items() if member != name}
                yield msgspec.structs.replace(vector, release=release, expect=expect)


class RecordedRelease:
    """The folder of a release: the answers that differ from those of RECORDED, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[str, dict[str, Any]] = {}
        path = folder / "skipped.json"
        try:
            by_reason = json.loads(path.read_text(encoding="utf-8"))
            self.skipped = frozenset(name for names in by_reason.values() for name in names)
        except (OSError, AttributeError, TypeError, *JSON_ERRORS) as error:
            rule = f"must be an object with lists of ids: {error_text(error)}"
            raise InputError([Fault(source=str(path), rule=rule)]) from None

    def answers(self, name: str) -> dict[str, Any]:
        """The differing answers of a family, or to the questions of a file of that name, by the id of the question."""
        if name not in self._answers:
            file = self._folder / f"{name}.jsonl.gz"
            self._answers[name] = _differing(str(file)) if file.exists() else {}
        return self._answers[name]


def _differing(path: str) -> dict[str, Any]:
    try:
        with open_text(path) as lines:
            documents = (json.loads(line) for line in lines if line.strip())
            return {document["id"]: document["expect"] for document in documents}
    except (OSError, EOFError, KeyError, TypeError, zlib.error, *JSON_ERRORS) as error:
        rule = f"must have an object with id and expect on each line: {error_text(error)}"
        raise InputError([Fault(source=path, rule=rule)]) from None


def _folder(path: str, release: str) -> Path | None:
    if path == STANDARD_STREAM:
        return None
    here = Path(path).resolve().parent
    return next(
        (folder for above in (here, here.parent) if (folder := above / "releases" / release).is_dir()), None
    )


def question_gates(question: Mapping[str, Any], release: ReleaseTable) -> FeatureGates:
    """The release's gates with those that the question sets, which were recorded without the kubelet's checks."""
    return gates_set(question.get("featureGates") or {}, release)


def amount_texts(amounts: Mapping[str, object]) -> dict[str, str]:
    """The amounts as Kubernetes prints them."""
    return {name: str(amount) for name, amount in amounts.items()}


def read_amounts(texts: Mapping[str, Any]) -> ResourceList:
    """The amounts that the texts or numbers name."""
    return {name: Quantity.parse(str(text)) for name, text in texts.items()}


def plain_resources(resources: ResourceRequirements) -> dict[str, dict[str, str]]:
    """The requests and limits as Kubernetes prints them; empty ones are left out."""
    lists = {"requests": amount_texts(resources.requests), "limits": amount_texts(resources.limits)}
    return {name: texts for name, texts in lists.items() if texts}


def named_container(pod: Pod, name: str) -> Container:
    """The pod's container of this name."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return next(container for container in containers if container.name == name)


def by_container(
    convert: Callable[[Any], T], entries: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, dict[str, T]]:
    """The entries by pod and container, converted; none at all if they are absent."""
    return {
        pod: {name: convert(entry) for name, entry in containers.items()}
        for pod, containers in (entries or {}).items()
    }


def plain_failure(failure: PredicateFailure) -> dict[str, Any]:
    """The shortage with its numbers, or the predicate with its description."""
    if isinstance(failure, InsufficientResource):
        return {
            "resource": failure.resource,
            "requested": failure.requested,
            "used": failure.used,
            "capacity": failure.capacity,
        }
    predicate, description = failure.failed_predicate()
    return {"predicate": predicate, "description": description}
