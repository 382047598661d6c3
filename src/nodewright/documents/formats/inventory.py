"""Loads all objects of manifests in order, as an API server would receive them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.api_objects import LoadedObject, OtherObjects, RESTMapper
from nodewright.documents.formats.documents import (
    InputFile,
    decode_text,
    input_files,
    is_object_like,
    is_template,
    parse_documents,
    readable_documents,
)
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.documents.formats.manifests import ManifestLoader, load_files
from nodewright.documents.formats.object_location import ObjectLocation, with_type_meta
from nodewright.documents.formats.object_selection import ALL_OBJECTS, ObjectSelection
from nodewright.documents.formats.quota_refusals import object_manifest, workload_manifest
from nodewright.documents.formats.workloads import Workload
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.api_request import Manifest
from nodewright.model.patterns import lazy_pattern


class InventoryObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a manifest, with its location."""

    location: ObjectLocation
    value: dict[str, Any]
    """The object as written."""
    manifest: Manifest
    workload: Workload | None = None
    """The workload, if the object creates pods."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of the files."""

    objects: tuple[InventoryObject, ...] = ()
    namespace: str = "default"
    """The namespace of objects that name none."""
    warnings: tuple[str, ...] = ()
    skipped: Mapping[str, int] = {}
    """Number of files and documents in directories that hold no objects, by kind."""


def load_inventory(
    filenames: Sequence[str | InputFile],
    namespace: str = "default",
    *,
    recursive: bool = False,
    max_bytes: int = MAX_YAML_BYTES,
    selection: ObjectSelection = ALL_OBJECTS,
) -> Inventory:
    """All objects in the files, directories or standard input (`-`) named, in order.

    `namespace` is for objects that name none; `recursive` descends into subdirectories.
    Units:  max_bytes in bytes of YAML a file; JSON may be larger.
    Errors: InputError with the faults of all documents at once.
    """
    loading = ManifestLoader(namespace, max_bytes, other_objects=OtherObjects(), selection=selection)
    load_files(loading, filenames, recursive=recursive)
    return loaded_inventory(loading)


def inventory_from_bytes(content: bytes, source: str, namespace: str = "default") -> Inventory:
    """All objects in the bytes of one file; otherwise like `load_inventory`.

    >>> content = b"{apiVersion: v1, kind: Service, metadata: {name: web}}"
    >>> manifest = inventory_from_bytes(content, "web.yaml").objects[0].manifest
    >>> str(manifest.resource), manifest.namespace, manifest.name
    ('services', 'default', 'web')
    """
    loading = ManifestLoader(namespace, other_objects=OtherObjects())
    loading.add_file(InputFile(source, content))
    return loaded_inventory(loading)


def inventory_from_objects(
    values: Iterable[tuple[dict[str, Any], ObjectLocation]],
    namespace: str = "default",
    *,
    selection: ObjectSelection = ALL_OBJECTS,
    judges_templates: bool = False,
) -> Inventory:
    """An inventory of the objects, each with the location for its faults; otherwise like `load_inventory`."""
    loading = ManifestLoader(
        namespace, other_objects=OtherObjects(), selection=selection, judges_templates=judges_templates
    )
    for value, location in values:
        loading.add_object(value, location)
    return loaded_inventory(loading)


def without_duplicates(inventory: Inventory) -> Inventory:
    """The objects after all are applied: of objects with the same name the last, at the first one's position."""
    object_of_key: dict[object, InventoryObject] = {}
    warnings = list(inventory.warnings)
    for number, item in enumerate(inventory.objects):
        manifest = item.manifest
        name = manifest.object.metadata.name
        # An object without a name gets a generated name, so it is never a duplicate.
        part = item.location.prefix if manifest.is_part else None
        key = (manifest.resource, manifest.namespace, name, part) if name else number
        if key in object_of_key:
            full_name = f"{manifest.namespace}/{manifest.name}" if manifest.namespace else manifest.name
            warnings.append(
                f"{manifest.kind} {full_name} is defined more than once; the last definition counts"
            )
        object_of_key[key] = item
    return replace(inventory, objects=tuple(object_of_key.values()), warnings=tuple(dict.fromkeys(warnings)))


def loaded_inventory(loading: ManifestLoader) -> Inventory:
    """The inventory of a loader that collects all objects.

    Errors: InputError with all faults.
    """
    loaded = loading.result()
    assert loading.other_objects is not None, "an inventory needs all objects"
    mapper = RESTMapper(loading.other_objects.custom_resources)
    objects = tuple(
        _inventory_object(loaded_object, mapper, loaded.workloads, loading.namespace)
        for loaded_object in loading.other_objects.objects
    )
    return Inventory(
        objects=objects, namespace=loading.namespace, warnings=loaded.warnings, skipped=loaded.skipped
    )


def _inventory_object(
    loaded_object: LoadedObject, mapper: RESTMapper, workloads: Sequence[Workload], namespace: str
) -> InventoryObject:
    value, item = loaded_object.value, loaded_object.item
    workload = None
    if isinstance(item, int):
        workload = workloads[item]
        manifest = workload_manifest(value, workload, mapper, namespace)
    else:
        manifest = object_manifest(value, item, mapper, namespace)
    return InventoryObject(location=loaded_object.location, value=value, manifest=manifest, workload=workload)


_MARK = lazy_pattern(r"^---(?=\s|$)", re.MULTILINE)
_MAX_PARTS = 2_000
"""A broken file of more documents is left out as a whole: to parse each alone takes longer than a user waits."""


class PartialInventory(NamedTuple):
    """The sound objects of the files, and the faults of the others."""

    inventory: Inventory
    faults: tuple[Fault, ...] = ()


class _Object(NamedTuple):
    value: Any
    location: ObjectLocation


def load_sound_objects(
    filenames: Sequence[str | InputFile],
    namespace: str = "default",
    *,
    recursive: bool = False,
    max_bytes: int = MAX_YAML_BYTES,
    selection: ObjectSelection = ALL_OBJECTS,
) -> PartialInventory:
    """The objects of the files without faults, and all faults; otherwise like `load_inventory`.

    A document that is not YAML, or an object that the API server rejects, does not hide the others of its file.
    Units:  max_bytes in bytes of YAML a file; JSON may be larger.
    Errors: InputError naming each missing path, each directory without manifests, and namespaces with very many policies.
    """
    faults: list[Fault] = []
    files = list(input_files(filenames, faults, recursive=recursive, max_bytes=max_bytes))
    loading = ManifestLoader(namespace, max_bytes, other_objects=OtherObjects(), selection=selection)
    for file in files:
        loading.add_file(file)
    if crowded := loading.crowded_namespaces():
        raise InputError(crowded)
    try:
        return PartialInventory(loaded_inventory(loading), tuple(faults))
    except InputError:
        return _sound_objects(files, faults, loading)


def _sound_objects(
    files: Sequence[InputFile], faults: list[Fault], loading: ManifestLoader
) -> PartialInventory:
    objects: list[_Object] = []
    skipped: dict[str, int] = {}
    for file in files:
        sound_file = _without_broken_documents(file, faults, skipped, loading.max_bytes)
        documents = parse_documents(sound_file.content, file.source, max_bytes=loading.max_bytes)
        for document in documents:
            if file.is_found and not is_object_like(document.value):
                continue
            location = ObjectLocation(file.source, sound_file.content, document.number, documents[-1].number)
            objects += _items(_Object(document.value, location))
    # Limit ranges take part in whether pods are valid.
    limit_ranges = [
        each for each in objects if _is_limit_range(each.value) and not _faults([each], loading.namespace)
    ]
    sound: list[_Object] = []
    for each in objects:
        others = [] if _is_limit_range(each.value) else limit_ranges
        if object_faults := _faults([*others, each], loading.namespace):
            faults += object_faults
        else:
            sound.append(each)
    inventory = inventory_from_objects(
        sound, loading.namespace, selection=loading.selection, judges_templates=True
    )
    return PartialInventory(replace(inventory, skipped={**inventory.skipped, **skipped}), tuple(faults))


def _faults(objects: Sequence[_Object], namespace: str) -> Sequence[Fault]:
    try:
        inventory_from_objects(objects, namespace, judges_templates=True)
    except InputError as error:
        return error.faults
    return ()


def _is_limit_range(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("apiVersion"), value.get("kind")) == ("v1", "LimitRange")


def _items(each: _Object) -> Iterator[_Object]:
    """The items of a list, or the object itself."""
    value, location = each
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(value.get("items"), list):
        yield each
        return
    prefix = f"{location.prefix}." if location.prefix else ""
    for index, item in enumerate(value["items"]):
        typed = with_type_meta(item, str(value.get("apiVersion")), kind)
        yield from _items(_Object(typed, replace(location, prefix=f"{prefix}items[{index}]")))


def _without_broken_documents(
    file: InputFile, faults: list[Fault], skipped: dict[str, int], max_bytes: int
) -> InputFile:
    """The file with empty lines in place of the documents that cannot be parsed."""
    try:
        documents = readable_documents(file, skipped, max_bytes=max_bytes)
    except InputError as error:
        whole = error.faults
    else:
        return file if documents else file._replace(content=b"")
    try:
        text = decode_text(file.content, file.source)
    except InputError:
        text = ""
    starts = [0, *(match.start() for match in _MARK.finditer(text)), len(text)]
    if len(starts) > _MAX_PARTS or text.lstrip()[:1] == "{" or is_template(file.content):
        faults += whole
        return file._replace(content=b"")
    part_faults: list[Fault] = []
    parts = []
    for start, end in pairwise(starts):
        part, line_count = text[start:end], text.count("\n", 0, start)
        try:
            parse_documents(("\n" * line_count + part).encode(), file.source, max_bytes=2 * max_bytes)
        except InputError as error:
            part_faults += error.faults
            part = ("---" if start else "") + "\n" * part.count("\n")
        parts.append(part)
    faults += part_faults or whole
    return file._replace(content="".join(parts).encode() if part_faults else b"")
