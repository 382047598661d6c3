"""Damages good input: its bytes, the cells of tables, or the values, fields and items of documents by their types."""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

from tests.support.full_objects import ALTERNATIVES, Field, field_table, full_value

from nodewright.documents.formats.documents import parse_documents
from nodewright.model.errors import InputError

TOKENS = (
    b"[", b"{", b"]", b"}", b"&a ", b"*a", b"<<: ", b"- ", b": ", b"? ", b"---\n", b"...\n", b"!!python/name:os ",
    b"!!binary ", b"!!set ", b"| \n", b">\n", b'"', b"'", b"#", b"%", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\r", b"\n  ", b"1e999", b"-1", b"0x1F", b"0o17", b"1_000", b".inf", b".nan", b"null", b"~",
    b"yes", b"1GB2", b"9" * 40, b"2026-01-01", b"22:22", b"\\u0000", b"[" * 300, b"[" * 3000, b"{a: " * 200, b"a: &a [*a]\n",
)  # fmt: skip

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**18, -(2**63) - 1, 10**400, 0.5, 1.5, 1e300, "", " ", "0", "-1", "1GB2",
    "500mX", "1e400", "9Ei", "100m", "0.1n", "NaN", "0-3", "3-0", "a/b/c", "../x", "x" * 300, "\u0000", "\ud7ff", "default",
    "Always", "Succeeded", "Failed", "cpu", "hugepages-2Mi", "hugepages-0", "static", "9" * 4400, "v1." + "9" * 4400,
    "9" * 4400 + "%", [], [None], [[]], {}, {"": ""}, {"cpu": None}, {"cpu": "1"}, [1, "a"], [{}], [{"key": {}}], {"a": 5},
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
)  # fmt: skip


def damaged(samples: tuple[bytes, ...], chance: random.Random) -> bytes:
    """A sample with some damage to its bytes or to its values."""
    sample = chance.choice(samples)
    if chance.random() < 0.75:
        documents = _documents(sample)
        if documents and isinstance(documents[0], dict | list):
            kept = documents if chance.random() < 0.5 else [chance.choice(documents)]
            copies = json.loads(json.dumps(kept))
            for _ in range(chance.choice((1, 1, 1, 2, 4))):
                _damage(copies, chance)
            if chance.random() < 0.3:
                return _in_blocks(copies)
            return b"\n---\n".join(json.dumps(document).encode() for document in copies)
        if b"," in sample and b"\n" in sample.strip():
            return _with_odd_cells(sample, chance)
    return _with_damaged_bytes(sample, samples, chance)


def _in_blocks(documents: list[Any]) -> bytes:
    """The objects as YAML documents, as in a file of manifests; alike ones differ in few lines."""
    items = [item for _, item in _objects(documents)] or documents
    return b"---\n".join("".join(_block_lines(item)).encode("utf-8", "surrogatepass") for item in items)


def _block_lines(item: Any) -> Iterator[str]:
    if not isinstance(item, dict):
        yield f"{json.dumps(item)}\n"
        return
    for key, value in item.items():
        if isinstance(value, dict) and value:
            yield f"{json.dumps(key) if not key.isalnum() else key}:\n"
            yield from (
                f"  {json.dumps(name) if not name.isalnum() else name}: {_scalar(below)}\n"
                for name, below in value.items()
            )
        else:
            yield f"{json.dumps(key) if not key.isalnum() else key}: {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) and value.isalpha() and value.isascii() else json.dumps(value)


def _damage(documents: list[Any], chance: random.Random) -> None:
    """Changes a value, sets a field of an object, or adds an object that is alike another one."""
    kind = chance.random()
    objects = list(_objects(documents))
    if objects and kind < 0.15:
        _add_alike_objects(*chance.choice(objects), chance)
    elif objects and kind < 0.45:
        places = list(_typed_places(chance.choice(objects)[1]))
        if places:
            _set_field(chance.choice(places), chance)
    else:
        values = (*ODD_VALUES, *(_some_value(documents, chance) for _ in range(10)))
        _change_a_value(documents, values, chance)


def _objects(items: list[Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The API objects in the list and in Lists, each with the list that holds it."""
    for item in items:
        if isinstance(item, dict):
            below = item.get("items")
            if isinstance(below, list):
                yield from _objects(below)
            elif isinstance(item.get("kind"), str):
                yield items, item


def _add_alike_objects(holder: list[Any], item: dict[str, Any], chance: random.Random) -> None:
    """Adds copies that differ in their names, and some in what decides whether and where they run."""
    for number in range(chance.choice((1, 2, 3))):
        copy = json.loads(json.dumps(item))
        if isinstance(copy.get("metadata"), dict):
            copy["metadata"]["name"] = f"alike{'abc'[number]}"
        if copy["kind"] == "Pod" and chance.random() < 0.8:
            status = copy.setdefault("status", {})
            if isinstance(status, dict):
                status["phase"] = chance.choice(("Succeeded", "Failed", "Running", "Pending", "Unknown", ""))
        if chance.random() < 0.3:
            _change_a_value(copy, ODD_VALUES, chance)
        holder.insert(chance.randrange(len(holder) + 1), copy)


class _Place(NamedTuple):
    """A field of an object that the field tables describe."""

    holder: dict[str, Any]
    field: Field


def _typed_places(item: dict[str, Any]) -> Iterator[_Place]:
    table = field_table()
    kind = item["kind"]
    if kind in table:
        yield from _places_below(item, kind)


def _places_below(value: Any, type_name: str) -> Iterator[_Place]:
    if type_name.startswith(("[", "{")):
        inner = type_name[1:-1]
        members = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        if isinstance(value, dict):
            yield from (_Place(value, Field(key, inner)) for key in value)
        for member in members:
            yield from _places_below(member, inner)
        return
    if isinstance(value, dict):
        for field in field_table().get(type_name, ()):
            if field.type and field.name not in ("kind", "apiVersion"):
                yield _Place(value, field)
                if field.name in value:
                    yield from _places_below(value[field.name], field.type)


def _set_field(place: _Place, chance: random.Random) -> None:
    holder, field = place
    match chance.randrange(4):
        case 0:
            holder[field.name] = json.loads(json.dumps(chance.choice(ODD_VALUES)))
        case 1:
            holder.pop(field.name, None)
        case _:
            holder[field.name] = json.loads(json.dumps(_typed_value(field, chance)))


_OF_TYPE: dict[str, tuple[Any, ...]] = {
    "int32": (0, 1, -1, 2**31 - 1, -(2**31), 2**31), "int64": (0, 1, -1, 2**63 - 1, -(2**63)),
    "quantity": ("0", "1", "-1", "100m", "1n", "9223372036854775807", "1e30", "500mX", "1Ki", 0, 0.1),
    "time": ("2026-05-01T10:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-05-01", ""),
    "bool": (True, False), "intstr": (0, 1, "50%", "100%", "-1", "x"),
    "str": ("", "a", "Never", "Always", "Failed", "Succeeded", "Pending", "Exists", "NoExecute", "x" * 254, "0"),
}  # fmt: skip


def _typed_value(field: Field, chance: random.Random) -> Any:
    if field.type in _OF_TYPE:
        return chance.choice(_OF_TYPE[field.type])
    if field.type[0] == "{" and field.type[1:-1] in _OF_TYPE:
        keys = ("cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "vendor.example/gpu", "a", "")
        return {chance.choice(keys): chance.choice(_OF_TYPE[field.type[1:-1]]) for _ in range(2)}
    value = full_value(field.type, field.name)
    return value[:1] if isinstance(value, list) and field.type[1:-1] in ALTERNATIVES else value


def _some_value(document: Any, chance: random.Random) -> Any:
    """A value of the document, on any level."""
    while isinstance(document, dict | list) and document and chance.random() < 0.8:
        document = chance.choice(list(document.values()) if isinstance(document, dict) else document)
    return document


def _change_a_value(document: Any, values: Sequence[Any], chance: random.Random) -> None:
    """Go down to some member or item, and remove, replace, repeat or misspell it."""
    while isinstance(document, dict | list) and document:
        keys: list[Any] = list(document) if isinstance(document, dict) else list(range(len(document)))
        key = chance.choice(keys)
        below = document[key]
        if isinstance(below, dict | list) and below and chance.random() < 0.85:
            document = below
            continue
        other = json.loads(json.dumps(chance.choice(values)))
        match chance.randrange(7):
            case 0:
                del document[key]
            case 1 if isinstance(document, dict):
                document[f"{key}{chance.choice(('s', ' ', '.', '/'))}"] = document.pop(key)
            case 2 if isinstance(document, list):
                document.append(below)
            case 3 if isinstance(document, list):
                document.extend(document * chance.choice((1, 5, 50)))
            case _:
                document[key] = other
        return


def _with_odd_cells(sample: bytes, chance: random.Random) -> bytes:
    rows = [line.split(b",") for line in sample.split(b"\n")[:50]]
    for _ in range(chance.choice((1, 1, 2, 4))):
        row = chance.choice(rows)
        match chance.randrange(5):
            case 0:
                rows.insert(chance.randrange(len(rows)), list(row))
            case 1:
                row.pop(chance.randrange(len(row)))
                row.extend([b""] if not row else [])
            case 2:
                row[chance.randrange(len(row))] = chance.choice(TOKENS)
            case _:
                value = chance.choice(ODD_VALUES)
                row[chance.randrange(len(row))] = (
                    value if isinstance(value, str) else json.dumps(value)
                ).encode()
    return b"\n".join(b",".join(row) for row in rows)


def _with_damaged_bytes(sample: bytes, samples: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = bytearray(sample)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0:
                content[at:at] = chance.choice(TOKENS)
            case 1:
                content[at : min(end, at + 20)] = chance.choice(TOKENS)
            case 2:
                del content[at:end]
            case 3:
                content[at:at] = content[at:end]
            case 4:
                other = chance.choice(samples)
                content[at:at] = other[chance.randrange(len(other) + 1) :][:200]
            case _:
                content[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(content)


EXTREMES: tuple[int | float | str, ...] = (
    *(0, -1, 2**31, 2**63, 10**18, 10**400, float("nan")),
    *("9" * 5000, "00000" + "9" * 20, "\u0663", "inf", ""),
)
"""What takes the place of a number in `with_extremes`."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(?P<unit>([eE][-+]?\d+|[A-Za-zµ%]{0,2})(/s)?)")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\S+")
EXTREME_TIMES = (
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "99999-01-01T00:00:00Z",
    "",
)


def with_extremes(samples: Sequence[bytes], first: int = 0, step: int = 1) -> Iterator[bytes]:
    """Every number, quantity, duration and time of the samples, replaced by each extreme, one at a time.

    Places that differ in the items of lists only, or in the sample, are tried once. Of all, every `step`th is given.
    """
    yield from (make() for make in islice(_extremes(samples), first, None, step))


def _extremes(samples: Sequence[bytes]) -> Iterator[Callable[[], bytes]]:
    """What makes each input."""
    seen = set[tuple[str, ...]]()
    for sample in dict.fromkeys(samples):
        documents = _documents(sample)
        if documents and isinstance(documents[0], dict | list):
            for place, path, value in _numbers(sample):
                if place not in seen:
                    seen.add(place)
                    yield from (
                        partial(_with_value, documents, path, extreme) for extreme in _extremes_of(value)
                    )
        elif b"," in sample and b"\n" in sample.strip():
            yield from _cell_extremes(sample, seen)
        else:
            yield from _word_extremes(sample)


@cache
def _numbers(sample: bytes) -> list[tuple[tuple[str, ...], tuple[Any, ...], Any]]:
    """The numbers of the documents: the kind and the fields, the path, the value."""
    documents = _documents(sample)
    places = ((path, _holder(documents, path)[path[-1]]) for path in _paths(documents))
    return [(_place_of(documents, path), path, value) for path, value in places if _extremes_of(value)]


def _with_value(documents: list[Any], path: tuple[Any, ...], value: Any) -> bytes:
    holder = _holder(documents, path)
    before, holder[path[-1]] = holder[path[-1]], value
    try:
        return _in_flow(documents)
    finally:
        holder[path[-1]] = before


def _in_flow(documents: list[Any]) -> bytes:
    """The documents as YAML in flow style; a number that JSON does not have as YAML writes it."""
    return re.sub(
        rb"(?<=[:\[] )NaN|(?<=\[)NaN",
        b".nan",
        b"\n---\n".join(json.dumps(item).encode() for item in documents),
    )


def _place_of(documents: list[Any], path: tuple[Any, ...]) -> tuple[str, ...]:
    """The kind of the object and the names of the fields below it."""
    value: Any = documents
    names = list[str]()
    for key in path:
        if isinstance(value, dict) and isinstance(value.get("kind"), str):
            names = [value["kind"]]
        if isinstance(key, str):
            names.append(key)
        value = value[key]
    return tuple(names)


def _extremes_of(value: Any) -> tuple[Any, ...]:
    """Extremes of the same kind as the value; none if it is no number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return EXTREMES
    if not isinstance(value, str):
        return ()
    if _TIME.fullmatch(value):
        return EXTREME_TIMES
    number = _NUMBER.fullmatch(value)
    if number is None and (inside := re.search(r"\d+", value)):
        return (value[: inside.start()] + "9" * 5000 + value[inside.end() :],)
    return (
        tuple(f"{extreme}{number['unit']}" if extreme != "" else "" for extreme in EXTREMES) if number else ()
    )


def _cell_extremes(sample: bytes, seen: set[tuple[str, ...]]) -> Iterator[Callable[[], bytes]]:
    rows = [line.split(b",") for line in sample.strip().split(b"\n")[:50]]
    for number, row in enumerate(rows[1:], 1):
        for column, (heading, cell) in enumerate(zip(rows[0], row, strict=False)):
            place = ("table", heading.decode("utf-8", "replace"))
            if place not in seen and (extremes := _extremes_of(cell.decode("utf-8", "replace"))):
                seen.add(place)
                yield from (partial(_with_cell, rows, number, column, extreme) for extreme in extremes)


def _with_cell(rows: list[list[bytes]], number: int, column: int, value: object) -> bytes:
    changed = [*rows]
    changed[number] = [*rows[number]]
    changed[number][column] = str(value).encode()
    return b"\n".join(b",".join(cells) for cells in changed)


def _word_extremes(sample: bytes) -> Iterator[Callable[[], bytes]]:
    for number in islice(re.finditer(rb"\d+", sample), 20):
        for extreme in EXTREMES:
            yield partial(_replaced, sample, number.span(), str(extreme).encode())


def _replaced(sample: bytes, span: tuple[int, int], text: bytes) -> bytes:
    return sample[: span[0]] + text + sample[span[1] :]


@cache
def _documents(sample: bytes) -> list[Any]:
    try:
        return [document.value for document in parse_documents(sample, "sample")]
    except InputError:
        return []


def smaller(content: bytes, still_fails: Callable[[bytes], bool], *, attempts: int = 400) -> bytes:
    """Input without the parts that a failure does not need: members and items, or else lines."""
    try:
        documents = [json.loads(part) for part in content.split(b"\n---\n")]
    except ValueError:
        return _fewer_lines(content, still_fails, attempts)

    def written(values: list[Any]) -> bytes:
        return b"\n---\n".join(json.dumps(value).encode() for value in values)

    left = attempts
    has_changed = True
    while has_changed and left > 0:
        has_changed = False
        for path in sorted(_paths(documents), key=len):
            holder = _holder(documents, path)
            if holder is None or (holder is documents and len(documents) == 1) or left <= 0:
                continue
            before = json.loads(json.dumps(documents))
            del holder[path[-1]]
            left -= 1
            if still_fails(written(documents)):
                has_changed = True
            else:
                documents = before
    return written(documents)


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all members and items; the last items of a list first."""
    if isinstance(value, dict | list):
        keys: list[Any] = list(value) if isinstance(value, dict) else list(reversed(range(len(value))))
        for key in keys:
            yield (*above, key)
            yield from _paths(value[key], (*above, key))


def _holder(value: Any, path: tuple[Any, ...]) -> Any:
    """What holds the place; None if it was removed."""
    for key in path[:-1]:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    is_there = (
        path[-1] in value if isinstance(value, dict) else isinstance(value, list) and path[-1] < len(value)
    )
    return value if is_there else None


def _fewer_lines(content: bytes, still_fails: Callable[[bytes], bool], attempts: int) -> bytes:
    lines = content.split(b"\n")
    for number in reversed(range(len(lines))):
        fewer = lines[:number] + lines[number + 1 :]
        if attempts > 0 and fewer and still_fails(b"\n".join(fewer)):
            lines = fewer
        attempts -= 1
    return b"\n".join(lines)
