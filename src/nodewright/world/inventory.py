"""All objects that files describe, in their order, as the API server would get them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodewright.model.manifest import Manifest
from nodewright.world.controllers import applied, controller_of, ephemeral_claims
from nodewright.world.files import File
from nodewright.world.kinds import Kinds
from nodewright.world.manifests import Loading, Workload, take_files
from nodewright.world.others import Others, Taken, placed
from nodewright.world.places import Place
from nodewright.world.yaml import MAX_YAML_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An object, and where it stands."""

    place: Place
    value: dict[str, Any]
    """The object as written."""
    manifest: Manifest
    workload: Workload | None = None
    """What makes pods, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What the files held."""

    entries: tuple[Entry, ...] = ()
    namespace: str = "default"
    """Of objects that name none."""
    warnings: tuple[str, ...] = ()


def load_inventory(
    filenames: Sequence[str],
    namespace: str = "default",
    *,
    recursive: bool = False,
    max_bytes: int = MAX_YAML_BYTES,
) -> Inventory:
    """All objects in the files, directories or standard input (`-`) named, in order.

    `namespace` is for objects that name none; `recursive` goes down into directories.
    Units:  max_bytes in bytes of YAML a file; JSON may be larger.
    Errors: InputError with the faults of all documents at once.
    """
    loading = Loading(namespace, max_bytes, others=Others())
    take_files(loading, filenames, recursive=recursive)
    return _inventory(loading)


def inventory_from(content: bytes, source: str, namespace: str = "default") -> Inventory:
    """All objects in the bytes of one file; else as load_inventory.

    >>> entry, = inventory_from(b"{apiVersion: v1, kind: Service, metadata: {name: web}}", "web.yaml").entries
    >>> str(entry.manifest.resource), entry.manifest.namespace, entry.manifest.name
    ('services', 'default', 'web')
    """
    loading = Loading(namespace, others=Others())
    loading.take_file(File(source, content))
    return _inventory(loading)


def inventory_of(values: Iterable[tuple[dict[str, Any], Place]], namespace: str = "default") -> Inventory:
    """The objects as given, each with the place that faults of it are told with; else as load_inventory."""
    loading = Loading(namespace, others=Others())
    for value, place in values:
        loading.take_object(value, place)
    return _inventory(loading)


def applied_once(inventory: Inventory) -> Inventory:
    """The objects as they are after all of them were applied: of those with one name the last, in the first's place."""
    found: dict[object, Entry] = {}
    warnings = list(inventory.warnings)
    for number, entry in enumerate(inventory.entries):
        one = entry.manifest
        # What has no name gets a new one each time.
        key = (one.resource, one.namespace, one.object.metadata.name) if one.object.metadata.name else number
        if key in found:
            whose = f"{one.namespace}/{one.name}" if one.namespace else one.name
            warnings.append(f"{one.kind} {whose} is there more than once; the last one counts")
        found[key] = entry
    return replace(inventory, entries=tuple(found.values()), warnings=tuple(dict.fromkeys(warnings)))


def _inventory(loading: Loading) -> Inventory:
    loaded = loading.result()
    assert loading.others is not None, "an inventory is made of them"
    kinds = Kinds(loading.others.custom)
    entries = tuple(_entry(one, kinds, loaded.workloads, loading.namespace) for one in loading.others.taken)
    return Inventory(entries=entries, namespace=loading.namespace, warnings=loaded.warnings)


def _entry(taken: Taken, kinds: Kinds, workloads: Sequence[Workload], default: str) -> Entry:
    version, kind = taken.value["apiVersion"], taken.value["kind"]
    served = kinds.served(version, kind)
    workload = workloads[taken.item] if isinstance(taken.item, int) else None
    item = applied(taken.value, workload.pod) if workload is not None else taken.item
    assert not isinstance(item, int), "the number of a workload"
    namespace = (item.metadata.namespace or default) if served.is_namespaced else ""
    manifest = Manifest(
        api_version=version,
        kind=kind,
        resource=served.resource,
        object=placed(item, namespace),
        is_namespaced=served.is_namespaced,
        controller=controller_of(taken.value, workload.pod) if workload is not None else None,
        volumes=ephemeral_claims(workload.pod) if workload is not None else (),
    )
    return Entry(place=taken.place, value=taken.value, manifest=manifest, workload=workload)
