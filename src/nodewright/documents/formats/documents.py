"""Reads the files that `-f` names and parses them into plain documents.

Files, directories as kubectl walks them and standard input; YAML or JSON in UTF-8, UTF-16 or UTF-32. A command that has
read `node/worker-3` from a cluster provides it under this name; from then on every feature reads it as it reads a file, so
that it answers exactly as from files.
"""

import codecs
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from nodewright.documents.files.regular_files import (
    is_directory,
    is_there,
    open_named_file,
    read_bounded,
    read_regular_file,
)
from nodewright.documents.formats.json_documents import JSON_BLANKS, NotJSONError, json_documents, large_list
from nodewright.documents.formats.kubectl_yaml import (
    MAX_YAML_BYTES,
    YAMLDocument,
    read_alike_documents,
    read_documents,
)
from nodewright.model.errors import Fault, InputError, shortened
from nodewright.model.printable import address_text

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, because its mark starts with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def parse_documents(
    content: bytes, source: str, *, max_bytes: int = MAX_YAML_BYTES, item_by_item: bool = False
) -> list[YAMLDocument]:
    """The non-empty documents in the bytes, parsed as JSON if they are JSON, otherwise as YAML.

    ``item_by_item``: the items of a large List are decoded one at a time when they are read (`ListItems`).
    Follows: v1.36, apimachinery/pkg/util/yaml/decoder.go, YAMLOrJSONDecoder: text that starts with a brace is
             tried as JSON first.
    Departs: duplicate keys are errors in both.
    Errors:  InputError with the faults: encoding, syntax, duplicate keys, nesting, size.
    """
    if item_by_item and len(content) > LARGE_BYTES:
        document = large_list(content, source, partial(parse_documents, content, source, max_bytes=max_bytes))
        if document is not None:
            return [document]
    text = decode_text(content, source)
    if text.lstrip(JSON_BLANKS)[:1] != "{":
        if text.count("\n---") < MANY_DOCUMENTS:
            return read_documents(text, source, max_bytes=max_bytes)
        return read_alike_documents(text, source, max_bytes=max_bytes)
    try:
        return json_documents(text, source)
    except NotJSONError as error:
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


LARGE_BYTES = 4 * MAX_YAML_BYTES
"""The size from which the items of a List of JSON are decoded one at a time."""
MANY_DOCUMENTS = 16
"""The number of document markers from which alike documents are searched for."""
MAX_JSON_BYTES = 1 << 30
"""Limit for JSON, beyond every list of a cluster that fits into the memory."""
_CHUNK_BYTES = 1 << 20
_MAX_CHARACTER_BYTES = 4  # bytes, in UTF-32
_BYTES_BEFORE_JSON = b" \t\r\n\0" + codecs.BOM_UTF8 + codecs.BOM_UTF16_LE
SUFFIXES = (".json", ".yaml", ".yml")
STDIN = "-"
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml")
_PATCH_FIELDS = ("patches", "patchesStrategicMerge", "patchesJson6902")


class InputFile(NamedTuple):
    """The name of a file as messages show it, and its content."""

    source: str
    content: bytes
    is_found: bool = False
    """Whether it was found in a directory, not named; it may then contain something else than objects."""
    is_patch: bool = False
    """Whether a kustomization in its directory names it as a patch, so it holds parts of objects."""


TEMPLATE_FILES = "template files"
PATCH_FILES = "kustomize patches"
OTHER_DOCUMENTS = "documents without apiVersion and kind"
ENDED_PODS = "ended pods"
IDLE_LIMIT_RANGES = "LimitRanges of namespaces without pods"
NOT_SELECTED = "objects that -l does not select"
"""What is skipped besides kinds of objects; the first ones in files that were found in a directory."""
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


def readable_documents(
    file: InputFile, skipped: dict[str, int], *, max_bytes: int, item_by_item: bool = False
) -> list[YAMLDocument]:
    """The documents of a file; counts what a file that was found in a directory contains besides objects.

    ``item_by_item``: as in `parse_documents`.
    Errors: InputError with the faults of its syntax; of a template that was named with a remedy.
    """
    if file.is_patch:
        skipped[PATCH_FILES] = skipped.get(PATCH_FILES, 0) + 1
        return []
    try:
        documents = parse_documents(file.content, file.source, max_bytes=max_bytes, item_by_item=item_by_item)
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
        PATCH_FILES: "kustomize patch",
        ENDED_PODS: "ended pod",
        IDLE_LIMIT_RANGES: "LimitRange of a namespace without pods",
        NOT_SELECTED: "object that -l does not select",
        OTHER_DOCUMENTS: OTHER_DOCUMENTS.replace("documents", "document"),
    }
    return ", ".join(
        f"{count} {singular.get(kind, kind) if count == 1 else kind}" for kind, count in skipped.items()
    )


def found_instead(kinds: Mapping[str, int]) -> str:
    """What there is instead of the objects that are missing, to be added to a message; empty if there is nothing.

    >>> found_instead({"NodeProfile": 1}), found_instead({})
    (', only 1 NodeProfile', '')
    """
    return f", only {skipped_text(kinds)}" if kinds else ""


def named_files(filenames: Sequence[str], *, recursive: bool = False) -> list[str]:
    """The paths of the files, in order; a directory stands for its manifests, sorted by path.

    Subdirectories count only if `recursive`. Standard input stays `-`.
    Follows: v1.36, cli-runtime/pkg/resource/visitor.go, ExpandPathsToFileVisitors.
    Errors:  InputError naming each missing path and each directory without manifests.
    """
    paths: list[str] = []
    faults: list[Fault] = []
    for name in filenames:
        if name == STDIN or is_url(name) or provided_content(name) is not None:
            paths.append(name)
        elif is_directory(name):
            manifests = _manifests_in(name, recursive=recursive)
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
    paths = named_files(filenames, recursive=recursive)
    patches = patch_files(path for path in paths if path not in filenames)
    for path in paths:
        try:
            file = read_file(path, max_bytes=max_bytes)
        except InputError as error:
            faults.extend(error.faults)
        else:
            yield file._replace(is_found=path not in filenames, is_patch=path in patches)
    yield from (file for file in inputs if isinstance(file, InputFile))


def patch_files(paths: Iterable[str]) -> frozenset[str]:
    """The files that kustomizations among these name as patches: parts of objects, which kustomize completes.

    The fields are patches, patchesStrategicMerge and patchesJson6902. A kustomization that cannot be read names none.
    """
    paths_by_name = {os.path.normpath(path): path for path in paths}
    patches: list[str] = []
    for path in paths_by_name.values():
        folder, name = os.path.split(path)
        if name not in _KUSTOMIZATIONS:
            continue
        try:
            documents = parse_documents(read_regular_file(path), path)
        except (InputError, OSError):
            continue
        for document in documents:
            value = document.value if isinstance(document.value, dict) else {}
            entries = [entry for field in _PATCH_FIELDS for entry in _entries(value.get(field))]
            names = [entry.get("path") if isinstance(entry, dict) else entry for entry in entries]
            patches += [
                os.path.join(folder, name)  # noqa: PTH118 - pathlib takes long to import
                for name in names
                if isinstance(name, str) and "\n" not in name
            ]
    return frozenset(paths_by_name[path] for path in map(os.path.normpath, patches) if path in paths_by_name)


def _entries(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def read_file(path: str, *, max_bytes: int = MAX_YAML_BYTES, is_found: bool = False) -> InputFile:
    """The file's content; `-` is standard input.

    ``is_found``: the file was not named but found in a directory, and must be a regular one.
    Units:  max_bytes in bytes of YAML; JSON may be larger.
    Errors: InputError with the system's error, or if a file that is not JSON exceeds the limit.
    """
    source = "stdin" if path == STDIN else address_text(path) if is_url(path) else path
    provided = provided_content(path)
    if provided is not None:
        return InputFile(source, provided)
    try:
        if path == STDIN:
            return InputFile(source, _content(sys.stdin.buffer, source, max_bytes))
        if is_url(path):
            with _opened_url(path) as response:
                return InputFile(source, _content(response, source, max_bytes))
        if is_found:
            return InputFile(source, _content(io.BytesIO(read_regular_file(path)), source, max_bytes))
        with open_named_file(path) as file:
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
    """The content of a URL, whose user information is sent as kubectl does, to that origin only.

    Errors: OSError, whose text has no part of the URL.
    """
    from nodewright.documents.files.url_files import open_url  # noqa: PLC0415 - start-up time

    return open_url(url, _URL_TIMEOUT_S)


def _content(file: BinaryIO, source: str, max_bytes: int) -> bytes:
    limit = min(_MAX_CHARACTER_BYTES * max_bytes + len(codecs.BOM_UTF32_LE), MAX_JSON_BYTES)
    content = _first_bytes(file, limit + 1)
    if len(content) <= limit:
        return content
    if starts_as_json(content):
        return read_bounded(file, MAX_JSON_BYTES, source, start=content)
    rule = f"more than {max_bytes} bytes of YAML, which is the limit (JSON may be larger)"
    raise InputError([Fault(rule=rule, source=source)])


def _first_bytes(file: BinaryIO, count: int) -> bytes:
    """So many bytes of the file, or all of a shorter one; `read` reserves memory for as many as it is asked for."""
    content = io.BytesIO()
    while chunk := file.read(min(_CHUNK_BYTES, count - content.tell())):
        content.write(chunk)
    return content.getvalue()


def starts_as_json(content: bytes) -> bool:
    """Whether the text begins as a JSON object, in any encoding.

    >>> starts_as_json(b" {}"), starts_as_json(b"a: {}")
    (True, False)
    """
    return content[:LARGE_BYTES].translate(None, _BYTES_BEFORE_JSON)[:1] == b"{"


def _manifests_in(directory: str, *, recursive: bool) -> list[str]:
    from pathlib import Path  # noqa: PLC0415 - start-up time

    paths = Path(directory).rglob("*") if recursive else Path(directory).iterdir()
    try:
        return sorted(str(path) for path in paths if path.suffix in SUFFIXES and path.is_file())
    except OSError as error:
        raise InputError(
            [Fault(rule=f"cannot be read: {error.strerror}", source=str(error.filename or directory))]
        ) from None


_CONTENTS: ContextVar[Mapping[str, bytes]] = ContextVar("provided documents", default={})  # noqa: B039 - never changed


def provided_content(name: str) -> bytes | None:
    """The document of that name; None: none was provided."""
    return _CONTENTS.get().get(name)


@contextmanager
def provide_files(contents: Mapping[str, bytes]) -> Iterator[None]:
    """Provides documents by their names, in addition to those provided already.

    >>> with provide_files({"pod/web-0": b"{}"}):
    ...     provided_content("pod/web-0")
    b'{}'
    >>> provided_content("pod/web-0")
    """
    token = _CONTENTS.set({**_CONTENTS.get(), **contents})
    try:
        yield
    finally:
        _CONTENTS.reset(token)
