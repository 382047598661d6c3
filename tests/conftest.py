"""How many examples the laws are tried with: few at the desk and always the same ones, many by night.

`--hypothesis-profile=NAME` chooses another one; laws that say nothing of their own follow it.
"""

from hypothesis import HealthCheck, settings

# A loaded machine is no reason to fail.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("desk", PATIENT, max_examples=15, derandomize=True, database=None)
settings.register_profile("full", PATIENT, max_examples=150)
settings.register_profile("soak", PATIENT, max_examples=10_000)
settings.load_profile("desk")
