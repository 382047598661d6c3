"""Loads all objects of manifests in order, as an API server would receive them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.api_objects import LoadedObject, OtherObjects, RESTMapper
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES
from nodewright.documents.formats.manifests import ManifestLoader, load_files
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.object_selection import ALL_OBJECTS, ObjectSelection
from nodewright.documents.formats.quota_refusals import object_manifest, workload_manifest
from nodewright.documents.formats.workloads import Workload
from nodewright.model.kubernetes.api_request import Manifest


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
    loading = ManifestLoader(
        namespace, max_bytes, other_objects=OtherObjects(), selection=selection, judges_templates=False
    )
    load_files(loading, filenames, recursive=recursive)
    return loaded_inventory(loading)


def inventory_from_bytes(content: bytes, source: str, namespace: str = "default") -> Inventory:
    """All objects in the bytes of one file; otherwise like load_inventory.

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
    """An inventory of the objects, each with the location for its faults; otherwise like load_inventory."""
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
        key = (manifest.resource, manifest.namespace, name) if name else number
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
