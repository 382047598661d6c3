"""`nodewright evict`: which pods are evicted at a given usage, in what order and why, now or over time."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli import options, usage_options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.node_query import print_report, with_policies
from nodewright.cli.options import ManifestOptions, PolicyOptions, filename_options
from nodewright.cli.output_files import page_origin, write_page
from nodewright.cli.workload_input import print_warnings
from nodewright.documents.output.command_line import as_struct, option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.engine.core.eviction.eviction_policy import KUBELET, EvictionPolicy
from nodewright.engine.node.previews import node_eviction_forecast
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.values.duration import Duration, DurationError
from nodewright.predict.evict.evict_report import evict_text, evicted_names, eviction_report
from nodewright.predict.evict.node_usage import NodeWithUsage
from nodewright.predict.node import Node
from nodewright.predict.timeline.pressure_simulation import simulated_timeline, threshold_advice
from nodewright.predict.timeline.timeline_model import timeline_setup
from nodewright.predict.timeline.timeline_page import timeline_page
from nodewright.predict.timeline.timeline_report import (
    SimulatedTimelines,
    timeline_evicted_names,
    timeline_report,
    timeline_text,
)
from nodewright.predict.timeline.usage_forecast import GrowthForecast

if TYPE_CHECKING:
    from pathlib import Path

_DURATION = "10m"


class TimelineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The timeline options of a command line, named as the options."""

    timeline: bool
    growth: tuple[str, ...]
    duration: int | None
    policy: str | None
    policies: tuple[str, ...]
    compare: bool
    advise: bool
    html: "Path | None"

    @property
    def is_requested(self) -> bool:
        """Whether a timeline is requested."""
        return self.timeline or self.advise or self.compare

    @property
    def policy_choice(self) -> PolicyOptions:
        """The eviction policy, and the files with custom ones."""
        return PolicyOptions(files=self.policies, topology=None, cpu_picker=None, eviction=self.policy)

    def check(self) -> None:
        """Checks that options of a timeline are used with one, and that advice is about growth.

        Errors: click.UsageError.
        """
        names = ("growth", "duration", "policy", "policies", "html")
        needless = [name for name in names if getattr(self, name)]
        if needless and not self.is_requested:
            raise click.UsageError(f"--{needless[0]} needs --timeline, --advise or --compare")
        if self.advise and not self.growth:
            raise click.UsageError(
                "--advise needs --growth: without it no memory grows, and every threshold suffices"
            )


def _positive_ns(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    try:
        nanoseconds = None if text is None else Duration.parse(text).nanoseconds
    except DurationError as error:
        raise click.BadParameter(str(error), context, option) from None
    if nanoseconds is not None and nanoseconds <= 0:
        raise click.BadParameter("must be more than 0s", context, option)
    return nanoseconds


_OPTIONS = (
    option(
        "--timeline",
        "Simulate memory over time: when thresholds are crossed, when each pod ends, and whether the kernel's OOM "
        "killer acts before the kubelet.",
    ),
    option(
        "--growth [NS/]POD[/CONTAINER]=RATE|FILE",
        "Memory growth: a rate such as 64Mi/s, a UsageForecast, or a recorded series (.csv). The columns of a series "
        "are time,pod,container,memory; the pod `system` is what is outside the pods. Repeatable.",
        multiple=True,
    ),
    option(
        "--duration SPAN",
        f"Simulated time. Default: that of the UsageForecast, or {_DURATION}.",
        callback=_positive_ns,
    ),
    option(
        "--policy NAME",
        "How often usage is checked: kubelet, adaptive, swap-aware, or one of --policies. Default: the node's, or "
        "kubelet.",
    ),
    option(
        "--policies FILE",
        "Python file that defines eviction policies; it is executed. Repeatable.",
        multiple=True,
    ),
    option("--compare", "Compare the policies: when each pod ends, and how much work is lost."),
    option(
        "--advise",
        "Find the smallest evictionHard for memory with which the kubelet evicts before the OOM killer acts.",
    ),
    options.output_file_option(
        "--html",
        help="Also write the timeline as a self-contained page with a plot.",
    ),
)


@click.command("evict")
@partial(cluster_options, is_about_node=True)
@partial(filename_options, required=False)
@options.node_option()
@options.kubelet_config_option()
@options.release_option
@options.strict_option
@usage_options.usage_options
@as_struct(TimelineOptions, "timeline", reversed(_OPTIONS))
@option(
    "--signal",
    "Rank the pods for this signal, whether its threshold is met or not. Default: the signal that the kubelet "
    "handles first.",
    type=click.Choice([signal.value for signal in Signal]),
)
@options.output_option("json", "yaml", "wide", "name")
def command(  # noqa: PLR0913 - one argument an option
    node: str | None,
    kubelet_config: str | None,
    *,
    manifests: ManifestOptions,
    release: str | None,
    strict: bool,
    usage: usage_options.UsageOptions,
    timeline: TimelineOptions,
    signal: str | None,
    output: str | None,
) -> int:
    """Show which pods are evicted at this usage, in what order and why.

    Usage is the output of `kubectl get --raw /api/v1/nodes/NODE/proxy/stats/summary`, a NodeUsage, or a table (CSV).
    The pods are those of the node's profile, and those of -f that run on it. Exit code 0 if no pod is evicted, 3 if one is; of a timeline 3
    if the kernel's OOM killer acts before the kubelet.
    """
    timeline.check()
    profile, policies = with_policies(find_profile(node, release=release), timeline.policy_choice)
    source = node or "this machine"
    queried = Node.from_profile(profile, kubelet_config=kubelet_config, policies=policies, source=source)
    observed = usage_options.node_with_usage(queried, usage, manifests)
    warnings = (*queried.warnings, *observed.warnings)
    print_warnings(warnings, strict=strict)
    if timeline.is_requested:
        return _report_timeline(observed, timeline, output, warnings)
    forecast = node_eviction_forecast(
        observed.node.state,
        observed.usage,
        observed.filesystems,
        signal=None if signal is None else Signal(signal),
        after=observed.usage_after_reclaim,
    )
    if output == "name":
        text = evicted_names(forecast)
    elif output in ("json", "yaml"):
        report = eviction_report(forecast, warnings=warnings)
        text = (as_json if output == "json" else as_yaml)(report)
    else:
        text = evict_text(forecast, wide=output == "wide")
    print_report(text, output, queried.config)
    return NO if forecast.evicts else YES


def _report_timeline(
    observed: NodeWithUsage,
    timeline: TimelineOptions,
    output: str | None,
    warnings: Sequence[str],
) -> int:
    """Prints how memory develops instead of which pods are evicted now."""
    report = simulated_timelines(observed.node, observed.usage, timeline)
    if timeline.html is not None:
        write_page(timeline.html, timeline_page(report, observed.node.config, page_origin()))
    if output in ("json", "yaml"):
        document = timeline_report(report, observed.node.config, warnings=warnings)
        text = (as_json if output == "json" else as_yaml)(document)
    elif output == "name":
        text = timeline_evicted_names(report)
    else:
        text = timeline_text(report)
    print_report(text, output, observed.node.config)
    return NO if report.runs[0].is_lost else YES


def simulated_timelines(node: Node, usage: StatsSummary, timeline: TimelineOptions) -> SimulatedTimelines:
    """The timelines that the options request.

    Errors: InputError with the faults of the growth, or for a usage without memory.
    """
    forecast = _growth_forecast(node, timeline.growth)
    duration_ns = timeline.duration or forecast.duration_ns or Duration.parse(_DURATION).nanoseconds
    setup = timeline_setup(node.config, node.pods, usage, forecast.growth, duration_ns=duration_ns)
    if setup is None:
        rule = "the node's memory is unknown: specify node.memory, or memory.available"
        raise InputError([Fault(source="--usage", rule=rule)])
    setup = replace(setup, assumptions=forecast.assumptions)
    chosen = node.config.parts.policies.eviction or KUBELET
    known: Sequence[EvictionPolicy] = ()
    if timeline.compare:
        from nodewright.predict.policy_registry import load_policies  # noqa: PLC0415 - start-up time

        known = load_policies(timeline.policies).of_kind(EvictionPolicy)
    others = sorted(
        (policy for policy in known if policy.name != chosen.name),
        key=lambda policy: (policy.name != KUBELET.name, policy.name),
    )
    return SimulatedTimelines(
        setup=setup,
        runs=tuple(simulated_timeline(setup, policy) for policy in (chosen, *others)),
        advice=threshold_advice(setup, chosen) if timeline.advise else None,
        is_full=timeline.timeline,
    )


def _growth_forecast(node: Node, texts: Sequence[str]) -> GrowthForecast:
    forecast, faults = GrowthForecast(node.pods), list[Fault]()
    for text in texts:
        try:
            forecast.add(text)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return forecast
