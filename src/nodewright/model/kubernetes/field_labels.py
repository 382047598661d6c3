"""The fields of a pod that the downward API offers: their labels, subscripts and errors."""

_FIELDS = frozenset(
    [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.host",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ]
)
SUBSCRIPTED_FIELDS = ("metadata.annotations", "metadata.labels")


def split_subscript(path: str) -> tuple[str, str | None]:
    """A field's path and its subscript; None: it has none.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, SplitMaybeSubscriptedPath.

    >>> split_subscript("metadata.labels['a[b]c']"), split_subscript("metadata.labels")
    (('metadata.labels', 'a[b]c'), ('metadata.labels', None))
    """
    base, opened, subscript = path.removesuffix("']").partition("['")
    if not path.endswith("']") or not opened or not base:
        return path, None
    return base, subscript


def field_label_error(version: str, path: str) -> str:
    """Why the path is no field label of that version; empty if it is one.

    Follows: v1.36, pkg/apis/core/pods/helpers.go, ConvertDownwardAPIFieldLabel.

    >>> field_label_error("v1", "spec.containers")
    'field label not supported: spec.containers'
    """
    if version != "v1":
        return f"unsupported pod version: {version}"
    base, subscript = split_subscript(path)
    if subscript is not None:
        is_known = base in SUBSCRIPTED_FIELDS
        return "" if is_known else f"field label does not support subscript: {path}"
    return "" if path in _FIELDS else f"field label not supported: {path}"
