"""Reads the files that `-f` names and parses them into plain documents.

Files, directories as kubectl walks them and standard input; YAML or JSON in UTF-8, UTF-16 or UTF-32.
"""

import codecs
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nodewright.errors import Fault, InputError, shortened
from nodewright.formats.kubectl_yaml import (
    MAX_DEPTH,
    MAX_YAML_BYTES,
    YAMLDocument,
    as_integer_if_whole,
    read_documents,
)
from nodewright.formats.regular_files import is_directory, is_there, read_bounded, read_regular_file

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, because its mark starts with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_JSON_BLANKS = " \t\r\n"
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_documents(content: bytes, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[YAMLDocument]:
    """The non-empty documents in the bytes, parsed as JSON if they are JSON, otherwise as YAML.

    Follows: v1.36, apimachinery/pkg/util/yaml/decoder.go, YAMLOrJSONDecoder: text that starts with a brace is
             tried as JSON first.
    Departs: duplicate keys are errors in both.
    Errors:  InputError with the faults: encoding, syntax, duplicate keys, nesting, size.
    """
    text = decode_text(content, source)
    if text.lstrip(_JSON_BLANKS)[:1] != "{":
        return read_documents(text, source, max_bytes=max_bytes)
    try:
        return _json_documents(text, source)
    except _NotJSONError as error:
        if len(text) > max_bytes:
            raise InputError([error.fault]) from None
        return read_documents(text, source, max_bytes=max_bytes)


def decode_text(content: bytes, source: str) -> str:
    """The text of the bytes, decoded by their byte order mark; UTF-8 without one.

    Errors: InputError naming the first byte that cannot be decoded.
    """
    encoding, start = "utf-8", 0
    for mark, name in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            encoding, start = name, len(mark)
            break
    try:
        return content[start:].decode(encoding)
    except UnicodeDecodeError as error:
        rule = f"not valid {encoding.upper()}: {error.reason} at byte {start + error.start}"
        raise InputError([Fault(rule=rule, source=source)]) from None


class _NotJSONError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def _json_documents(text: str, source: str) -> list[YAMLDocument]:
    duplicate_keys: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value_of_key = dict(pairs)
        if len(value_of_key) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            duplicate_keys.extend(key for key, count in counts.items() if count > 1)
        return value_of_key

    decoder = json.JSONDecoder(
        object_pairs_hook=members, parse_float=_number, parse_constant=_reject_constant
    )
    has_surrogates = _ESCAPED_SURROGATE.search(text) is not None
    documents: list[YAMLDocument] = []
    end = _skip_blanks(text, 0)
    while end < len(text):
        line = text.count("\n", 0, end) + 1
        try:
            value, end = decoder.raw_decode(text, end)
        except json.JSONDecodeError as error:
            position = f"{source}:{error.lineno}:{error.colno}"
            raise _NotJSONError(Fault(rule=f"not valid JSON: {error.msg}", source=position)) from None
        except _NotFiniteError as error:
            raise _NotJSONError(Fault(rule=f"not valid JSON: {error}", source=source)) from None
        except ValueError:  # Python's limit on the digits of an integer
            raise InputError([Fault(rule="a number has too many digits", source=source)]) from None
        except RecursionError:
            raise InputError([_too_deep(source)]) from None
        if _is_deeper_than(value, MAX_DEPTH):
            raise InputError([_too_deep(source)])
        value = _without_surrogates(value) if has_surrogates else value
        documents.append(YAMLDocument(value, len(documents) + 1, line))
        end = _skip_blanks(text, end)
    if duplicate_keys:
        raise InputError(_duplicate_key_faults(text, source, duplicate_keys))
    return documents


def _duplicate_key_faults(text: str, source: str, keys: list[str]) -> Sequence[Fault]:
    """The faults of duplicate keys, with their positions if the text can be parsed as YAML."""
    try:
        read_documents(text, source)
    except InputError as error:
        if len(error.faults) == len(keys):
            return error.faults
    return [Fault(rule=f'the key "{key}" is given twice', value=key, source=source) for key in keys]


def _without_surrogates(value: Any) -> Any:
    """The value with unpaired UTF-16 surrogates replaced by U+FFFD, as Go does."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value


def _too_deep(source: str) -> Fault:
    return Fault(rule=f"nested more than {MAX_DEPTH} levels deep", source=source)


def _skip_blanks(text: str, start: int) -> int:
    while start < len(text) and text[start] in _JSON_BLANKS:
        start += 1
    return start


class _NotFiniteError(Exception):
    pass


def _number(text: str) -> int | float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFiniteError(f"the number {text} is too large")
    return as_integer_if_whole(value)


def _reject_constant(name: str) -> None:
    raise _NotFiniteError(f"{name} is not a JSON value")


def _is_deeper_than(value: Any, max_depth: int) -> bool:
    """Whether containers nest deeper; checked level by level, without recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(max_depth):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


MAX_JSON_BYTES = 1 << 30
"""Limit for JSON, beyond every list of a cluster that fits into the memory."""
_MAX_CHARACTER_BYTES = 4  # bytes, in UTF-32
_BYTES_BEFORE_JSON = b" \t\r\n\0" + codecs.BOM_UTF8 + codecs.BOM_UTF16_LE
SUFFIXES = (".json", ".yaml", ".yml")
STDIN = "-"


class InputFile(NamedTuple):
    """The name of a file as messages show it, and its content."""

    source: str
    content: bytes
    is_found: bool = False
    """Whether it was found in a directory, not named; it may then contain something else than objects."""


TEMPLATE_FILES = "template files"
OTHER_DOCUMENTS = "documents without apiVersion and kind"
"""What is skipped in files that were found in a directory, as the kinds of objects are."""
_TEMPLATE_ACTION = b"{{"
_RENDER_FIRST = "the file contains template actions ({{ }}): render it first, e.g. with `helm template`"


def is_object_like(value: Any) -> bool:
    """Whether the document is meant as an object: it has a kind, or an API version and metadata.

    >>> is_object_like({"resources": ["web.yaml"]}), is_object_like({"apiVersion": "v2", "name": "chart"})
    (False, False)
    """
    return isinstance(value, dict) and ("kind" in value or ("apiVersion" in value and "metadata" in value))


def is_template(content: bytes) -> bool:
    """Whether a text that is not YAML may be an unrendered template."""
    return _TEMPLATE_ACTION in content


def readable_documents(file: InputFile, skipped: dict[str, int], *, max_bytes: int) -> list[YAMLDocument]:
    """The documents of a file; counts what a file that was found in a directory contains besides objects.

    Errors: InputError with the faults of its syntax; of a template that was named with a remedy.
    """
    try:
        documents = parse_documents(file.content, file.source, max_bytes=max_bytes)
    except InputError as error:
        if not is_template(file.content):
            raise
        if not file.is_found:
            raise InputError([*error.faults, Fault(rule=_RENDER_FIRST, source=file.source)]) from None
        skipped[TEMPLATE_FILES] = skipped.get(TEMPLATE_FILES, 0) + 1
        return []
    if not file.is_found:
        return documents
    objects = [document for document in documents if is_object_like(document.value)]
    if len(objects) < len(documents):
        skipped[OTHER_DOCUMENTS] = skipped.get(OTHER_DOCUMENTS, 0) + len(documents) - len(objects)
    return objects


def skipped_text(skipped: Mapping[str, int]) -> str:
    """The counts of what is skipped, as a list.

    >>> skipped_text({"Service": 2, "template files": 1})
    '2 Service, 1 template file'
    """
    singular = {
        TEMPLATE_FILES: "template file",
        OTHER_DOCUMENTS: OTHER_DOCUMENTS.replace("documents", "document"),
    }
    return ", ".join(
        f"{count} {singular.get(kind, kind) if count == 1 else kind}" for kind, count in skipped.items()
    )


def named_files(filenames: Sequence[str], *, recursive: bool = False) -> list[str]:
    """The paths of the files, in order; a directory stands for its manifests, sorted by path.

    Subdirectories count only if `recursive`. Standard input stays `-`.
    Follows: v1.36, cli-runtime/pkg/resource/visitor.go, ExpandPathsToFileVisitors.
    Errors:  InputError naming each missing path and each directory without manifests.
    """
    paths: list[str] = []
    faults: list[Fault] = []
    for name in filenames:
        if name == STDIN or is_url(name):
            paths.append(name)
        elif is_directory(name):
            manifests = _manifests_in(Path(name), recursive=recursive)
            paths.extend(manifests)
            if not manifests:
                faults.append(Fault(rule=f"no files that end in one of {' '.join(SUFFIXES)}", source=name))
        elif is_there(name):
            paths.append(name)
        else:
            faults.append(Fault(rule=f'the path "{shortened(name)}" does not exist'))
    if faults:
        raise InputError(faults)
    return paths


def input_files(
    inputs: Sequence[str | InputFile], faults: list[Fault], *, recursive: bool, max_bytes: int
) -> Iterator[InputFile]:
    """The content of the named files, of those in named directories, and the files that have been read.

    Adds the faults of files that cannot be read.
    Errors: InputError naming each missing path and each directory without manifests.
    """
    filenames = [name for name in inputs if isinstance(name, str)]
    for path in named_files(filenames, recursive=recursive):
        try:
            file = read_file(path, max_bytes=max_bytes)
        except InputError as error:
            faults.extend(error.faults)
        else:
            yield file._replace(is_found=path not in filenames)
    yield from (file for file in inputs if isinstance(file, InputFile))


def read_file(path: str, *, max_bytes: int = MAX_YAML_BYTES, is_found: bool = False) -> InputFile:
    """The file's content; `-` is standard input.

    ``is_found``: nobody named the file, it was found in a directory and must be a regular one.
    Units:  max_bytes in bytes of YAML; JSON may be larger.
    Errors: InputError with the system's error, or if a file that is not JSON exceeds the limit.
    """
    source = "stdin" if path == STDIN else path
    try:
        if path == STDIN:
            return InputFile(source, _content(sys.stdin.buffer, source, max_bytes))
        if is_url(path):
            with _opened_url(path) as response:
                return InputFile(source, _content(response, source, max_bytes))
        if is_found:
            return InputFile(source, _content(io.BytesIO(read_regular_file(path)), source, max_bytes))
        with Path(path).open("rb") as file:
            return InputFile(source, _content(file, source, max_bytes))
    except OSError as error:
        rule = f"cannot be read: {error.strerror or getattr(error, 'reason', None) or error}"
        raise InputError([Fault(rule=rule, source=path)]) from None
    except ValueError as error:  # NUL
        raise InputError([Fault(rule=f"cannot be read: {error}", source=path)]) from None


_URL_TIMEOUT_S = 30


def is_url(name: str) -> bool:
    """Whether the name is read from a web server, as kubectl does with `-f`.

    >>> is_url("https://k8s.io/examples/pods/simple-pod.yaml"), is_url("https.yaml")
    (True, False)
    """
    return name.startswith(("http://", "https://"))


def _opened_url(url: str) -> BinaryIO:
    from urllib.request import urlopen  # noqa: PLC0415 - start-up time

    response: BinaryIO = urlopen(url, timeout=_URL_TIMEOUT_S)  # noqa: S310 - only http and https: is_url
    return response


def _content(file: BinaryIO, source: str, max_bytes: int) -> bytes:
    limit = _MAX_CHARACTER_BYTES * max_bytes + len(codecs.BOM_UTF32_LE)
    content = file.read(limit + 1)
    if len(content) <= limit:
        return content
    if content.translate(None, _BYTES_BEFORE_JSON)[:1] == b"{":
        return content + read_bounded(file, MAX_JSON_BYTES - len(content), source)
    rule = f"more than {max_bytes} bytes of YAML, which is the limit (JSON may be larger)"
    raise InputError([Fault(rule=rule, source=source)])


def _manifests_in(directory: Path, *, recursive: bool) -> list[str]:
    paths = directory.rglob("*") if recursive else directory.iterdir()
    try:
        return sorted(str(path) for path in paths if path.suffix in SUFFIXES and path.is_file())
    except OSError as error:
        raise InputError(
            [Fault(rule=f"cannot be read: {error.strerror}", source=str(error.filename or directory))]
        ) from None
