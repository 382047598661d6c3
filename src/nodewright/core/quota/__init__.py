"""Has the namespace room? What objects are charged to quotas, what is in use, and what is forbidden."""

from nodewright.core.quota.admission import (
    BeyondQuota,
    Bill,
    Charge,
    QuotaVerdict,
    WithinQuota,
    billed,
    charged,
    paid,
)
from nodewright.core.quota.devices import Surroundings, device_claims
from nodewright.core.quota.kinds import Kind, counted
from nodewright.core.quota.pods import pods
from nodewright.core.quota.services import SERVICES
from nodewright.core.quota.used import Population, calculated, usage_of
from nodewright.core.quota.volumes import VOLUME_CLAIMS

__all__ = [
    "SERVICES",
    "VOLUME_CLAIMS",
    "BeyondQuota",
    "Bill",
    "Charge",
    "Kind",
    "Population",
    "QuotaVerdict",
    "Surroundings",
    "WithinQuota",
    "billed",
    "calculated",
    "charged",
    "counted",
    "device_claims",
    "paid",
    "pods",
    "usage_of",
]
