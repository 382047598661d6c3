"""Settings for all tests: the number of examples of the laws, and which tests are measured for coverage.

`--hypothesis-profile=NAME` chooses a number of examples: few in `make check`, and the same ones each time; twenty in
`make test`; five hundred in `make soak`, which ends within two hours on two cores. Laws without settings of their own follow it.
"""

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# A loaded machine is no reason to fail.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("desk", PATIENT, max_examples=15, derandomize=True, database=None)
settings.register_profile("full", PATIENT, max_examples=20)
settings.register_profile("soak", PATIENT, max_examples=500)
settings.load_profile("desk")

TESTS = Path(__file__).parent
LONG = tuple(TESTS / each for each in ("vm", "live", "simulation", "laws", "conformance", "tools"))
"""Where tests wait or compute for seconds, in the order in which they begin; others take milliseconds."""
MEASURED = tuple(
    TESTS / each
    for each in (
        *(
            "conformance",
            "golden",
            "unit/documents",
            "unit/engine",
            "unit/fleet",
            "unit/model",
            "unit/predict",
        ),
        *("unit/agent/decide", "unit/agent/devices", "unit/agent/store", "unit/scheduling/verdicts"),
        *("unit/cli/test_explain.py", "unit/cli/test_help_parts.py", "unit/cli/test_lint_forms.py"),
        *("unit/cli/test_lint_settings.py", "unit/cli/test_next_start.py", "unit/cli/test_policies.py"),
        *("unit/cli/test_quota.py", "unit/cli/test_resource_claims.py", "unit/test_cli_lint.py"),
    )
)
"""Tests that cover the pure layers by themselves; measuring doubles the time of the others."""

# What a user who has only pytest and hypothesis may lack; tests that need one of these are skipped with the reason.
OPTIONAL = frozenset(
    [
        *(
            "aiohttp",
            "cryptography",
            "google",
            "grpc",
            "h11",
            "highspy",
            "polars",
            "starlette",
            "uvicorn",
            "wsproto",
        ),
        *("coverage", "grimp", "hatchling", "prometheus_client"),
    ]
)


def skip_without(error: BaseException | None) -> None:
    """Skips if the error is that an optional package is not installed."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name in OPTIONAL:
        pytest.skip(f"{name} is not installed", allow_module_level=True)


class ModuleWithOptionalPackages(pytest.Module):
    """A module of tests that is skipped if an optional package that it imports is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """The tests.

        Errors: pytest's skip if such a package is missing.
        """
        try:
            return super().collect()
        except self.CollectError as error:
            skip_without(error.__cause__)
            raise


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Collects garbage rarely, whatever the test before has set: what tests read (files, trees, recorded decisions) lasts."""
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skips a test that imports an optional package while it runs; fails one that leaves the process at another priority.

    Tests after it, the races among them, would run beside others with an advantage.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        yield
    except ModuleNotFoundError as error:
        skip_without(error)
        raise
    if (after := os.getpriority(os.PRIO_PROCESS, 0)) != before:
        os.setpriority(os.PRIO_PROCESS, 0, before)
        pytest.fail(f"the test left the priority of the process at {after}; it was {before}")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Skips a test whose fixture imports an optional package."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        skip_without(error)
        raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Modules whose optional packages may be missing."""
    return ModuleWithOptionalPackages.from_parent(parent, path=module_path)


class ModulesWithDoctests:
    """Collects doctests only from files that have some: one module in seven. Every worker collects everything."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """The collectors of a file, without that of doctests where the file has no prompt."""
        collectors = yield
        return [
            each
            for each in collectors
            if not isinstance(each, DoctestModule) or b">>> " in file_path.read_bytes()
        ]


def pytest_configure(config: pytest.Config) -> None:
    """Lets tests and the commands that they start be interrupted, also where a shell started pytest in the background."""
    config.pluginmanager.register(ModulesWithDoctests())
    config.option.doctest_ignore_import_errors = not all(map(find_spec, OPTIONAL))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Stops the measurement that pytest-cov begins in each worker before that of the worker itself.

    Otherwise it would go on, and its cost with it, in tests that are not measured.
    """
    if not session.config.pluginmanager.hasplugin("_cov") or not hasattr(session.config, "workerinput"):
        return
    measurement = sys.modules["coverage"].Coverage.current()
    if measurement is not None:
        measurement.stop()


def pytest_collection() -> None:
    """Collects without the garbage collector, which would walk through all that is collected again and again."""
    gc.disable()


@given(st.none())
def _first_law(_nothing: None) -> None:
    """Holds."""


def pytest_collection_finish() -> None:
    """Starts the garbage collector again, for what tests make: modules and items last until the end.

    Before, hypothesis sets itself up: it looks among the objects that can be collected for random numbers.
    """
    _first_law()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deals long tests to the workers, and measures the coverage of some tests only.

    Those of `MEASURED` that are fast, and doctests.
    """
    if hasattr(config, "workerinput"):
        items[:] = dealt(items, config.workerinput["workercount"])
    if not config.pluginmanager.hasplugin("_cov"):
        return
    for item in items:
        is_measured = is_below(item.path, MEASURED) and "slow" not in item.keywords
        if is_below(item.path, (TESTS,)) and not is_measured:
            item.add_marker("no_cover")


def dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in an order in which each worker's share begins with as many modules of long tests as the others'.

    `--dist worksteal` gives each worker one share of the order, of equal counts, and moves tests from the end of a share
    to a worker that has none left. So those that wait run beside those that compute, and what is moved takes milliseconds.
    """
    modules = defaultdict[Path, list[pytest.Item]](list)
    for item in items:
        modules[item.path].append(item)
    long = [modules.pop(path) for place in LONG for path in sorted(modules) if is_below(path, (place,))]
    quick = [item for module in modules.values() for item in module]
    order: list[pytest.Item] = []
    for worker in range(workers):
        share = [item for module in long[worker::workers] for item in module]
        fill = max(0, len(items) // workers - len(share)) if worker < workers - 1 else len(quick)
        order += [*share, *quick[:fill]]
        del quick[:fill]
    return order


@cache
def is_below(path: Path, places: tuple[Path, ...]) -> bool:
    """Whether a file is one of these, or in one of these directories; the tests of a file share its path."""
    return any(place in (path, *path.parents) for place in places)
