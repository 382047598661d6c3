"""The name, namespace and labels of an object."""

from collections.abc import Iterator, Mapping

from nodewright.core.validation.names import key_rules, label_rules, subdomain_rules, value_rules
from nodewright.core.validation.violation import Violation, each_invalid, required
from nodewright.model.objects import ObjectMeta


def metadata_violations(meta: ObjectMeta, path: str = "metadata") -> Iterator[Violation]:
    """What the API server has against the metadata.

    Follows: v1.36, apimachinery/pkg/api/validation/objectmeta.go, ValidateObjectMetaWithOpts.
    """
    if meta.generate_name:
        # The dash that usually ends it would offend; a letter comes after it anyway.
        base = meta.generate_name
        whole = f"{base[:-1]}a" if base.endswith("-") and len(base) > 1 else base
        yield from each_invalid(f"{path}.generateName", base, subdomain_rules(whole))
    if not meta.name and not meta.generate_name:
        yield required(f"{path}.name", "name or generateName is required")
    elif meta.name:
        yield from each_invalid(f"{path}.name", meta.name, subdomain_rules(meta.name))
    if meta.namespace:
        yield from each_invalid(f"{path}.namespace", meta.namespace, label_rules(meta.namespace))
    yield from label_violations(meta.labels, f"{path}.labels")


def label_violations(labels: Mapping[str, str], path: str) -> Iterator[Violation]:
    """What the API server has against the labels, or against a selector that is made of such.

    Follows: v1.36, apimachinery/pkg/apis/meta/v1/validation/validation.go, ValidateLabels.
    """
    for key, value in sorted(labels.items()):
        yield from each_invalid(path, key, key_rules(key))
        yield from each_invalid(path, value, value_rules(value))
