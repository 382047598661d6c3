"""Would the API server take this pod, as far as its resources and its place are concerned?"""

from nodewright.core.validation.metadata import metadata_violations
from nodewright.core.validation.spec import violations
from nodewright.core.validation.violation import ErrorType, Violation

__all__ = ["ErrorType", "Violation", "metadata_violations", "violations"]
