"""Would the API server take this pod, as far as its resources and its place are concerned? And what bounds it?"""

from nodewright.core.validation.limit_ranges import limit_range_violations
from nodewright.core.validation.metadata import metadata_violations
from nodewright.core.validation.quotas import quota_violations
from nodewright.core.validation.spec import violations
from nodewright.core.validation.updates import update_violations
from nodewright.core.validation.violation import ErrorType, Violation

__all__ = [
    "ErrorType",
    "Violation",
    "limit_range_violations",
    "metadata_violations",
    "quota_violations",
    "update_violations",
    "violations",
]
