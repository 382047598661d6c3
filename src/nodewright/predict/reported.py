"""Makes a part of a report of a value, whose fields it has under the same names."""

from typing import Any, TypeVar

from msgspec import NODEFAULT, UNSET

from nodewright.documents.output.json_yaml import Report

P = TypeVar("P", bound=Report)


def reported(part: type[P], value: object, /, **given: Any) -> P:
    """The part with the given fields, and the others as the value has them.

    A field that may be absent is so if the value does not have it, or has None or an empty text there.

    >>> from nodewright.engine.core.predicates.scheduler_filters import UnknownResource
    >>> from nodewright.predict.node_report.report_parts import ReportedUnknownResource
    >>> reported(ReportedUnknownResource, UnknownResource("example.com/fpga", 2))
    ReportedUnknownResource(resource='example.com/fpga', requested=2)
    """
    defaults = dict(zip(reversed(part.__struct_fields__), reversed(part.__struct_defaults__), strict=False))
    for name in part.__struct_fields__:
        default = defaults.get(name, NODEFAULT)
        if name not in given and default is NODEFAULT:
            given[name] = getattr(value, name)
        elif name not in given and default is UNSET:
            field_value = getattr(value, name, UNSET)
            given[name] = UNSET if field_value is None or field_value == "" else field_value
    return part(**given)
