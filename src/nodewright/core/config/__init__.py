"""What does a KubeletConfiguration come to, and would the kubelet start with it?"""

from nodewright.core.config.checks import Settled, settled, startup_faults
from nodewright.core.config.defaults import defaulted
from nodewright.core.config.validation import validation_faults

__all__ = ["Settled", "defaulted", "settled", "startup_faults", "validation_faults"]
