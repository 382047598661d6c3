"""What `evict` is told of time: the options, and the timeline that they come to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.cli.options import PolicyChoice
from nodewright.core.eviction import KUBELET, EvictionPolicy
from nodewright.model.usage import Usage
from nodewright.render.timeline import Played
from nodewright.sim.timeline import advise, played, setting_of
from nodewright.values.duration import Duration, DurationError
from nodewright.world.errors import Fault, InputError
from nodewright.world.forecasts import Forecast
from nodewright.world.policies import registry

Command = TypeVar("Command", bound=Callable[..., Any])

_META = "nodewright.timeline"
_DURATION = "10m"


@dataclass(slots=True)
class Asked:
    """What the command line says of time."""

    values: dict[str, Any] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        """Whether a timeline is asked for."""
        return any(self.values.get(name) for name in ("timeline", "advise", "compare"))

    @property
    def policies(self) -> PolicyChoice:
        """Which eviction policy is meant, and where policies of somebody's own are."""
        files, name = self.values.get("policies") or (), self.values.get("policy")
        return PolicyChoice(files=files, topology=None, cpu_picker=None, eviction=name)

    @property
    def page(self) -> Path | None:
        """Where the page goes; None: none is wanted."""
        found: Path | None = self.values.get("html")
        return found


def asked() -> Asked:
    """What the command line that runs says.

    Errors: click.UsageError where options of a timeline come without one.
    """
    found: Asked = click.get_current_context().meta.setdefault(_META, Asked())
    alone = [name for name in ("growth", "duration", "policy", "policies", "html") if found.values.get(name)]
    if alone and not found.is_wanted:
        raise click.UsageError(f"--{alone[0]} needs --timeline, --advise or --compare")
    return found


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    assert option.name is not None
    context.meta.setdefault(_META, Asked()).values[option.name] = value


def _span(context: click.Context, option: click.Parameter, text: str | None) -> None:
    try:
        nanoseconds = None if text is None else Duration.parse(text).nanoseconds
    except DurationError as error:
        raise click.BadParameter(str(error), context, option) from None
    if nanoseconds is not None and nanoseconds <= 0:
        raise click.BadParameter("must be more than 0s", context, option)
    _keep(context, option, nanoseconds)


_OPTIONS = (
    click.option(
        "--timeline",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="Play memory forward: when thresholds are crossed, who ends when, whether the kernel is first.",
    ),
    click.option(
        "--growth",
        multiple=True,
        metavar="[NS/]POD[/CONTAINER]=RATE|FILE",
        expose_value=False,
        callback=_keep,
        help="How memory grows: a rate such as 64Mi/s (`system`: beside the pods), a UsageForecast, or a recorded "
        "series (.csv: time,pod,container,memory). Repeatable.",
    ),
    click.option(
        "--duration",
        metavar="SPAN",
        expose_value=False,
        callback=_span,
        help=f"How far to play. Default: what a UsageForecast says, or {_DURATION}.",
    ),
    click.option(
        "--policy",
        metavar="NAME",
        expose_value=False,
        callback=_keep,
        help="Who looks, and how often: kubelet, adaptive, swap-aware, or one of --policies. Default: the node's, or "
        "kubelet.",
    ),
    click.option(
        "--policies",
        multiple=True,
        metavar="FILE",
        expose_value=False,
        callback=_keep,
        help="A Python file with eviction policies of your own, which is run. Repeatable.",
    ),
    click.option(
        "--compare",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="The policies side by side: who ends when, how much work is lost.",
    ),
    click.option(
        "--advise",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="The smallest evictionHard for memory that wins the race; one step less loses it.",
    ),
    click.option(
        "--html",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_keep,
        help="Write the timeline as a page besides, with a plot; it needs nothing else.",
    ),
)


def options(command: Command) -> Command:
    """The options of timelines; `asked` has what they say."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def play(node: Node, usage: Usage) -> Played:
    """The timelines that the command line asks for.

    Errors: InputError with what is wrong with the growth, or with a usage that says nothing of memory.
    """
    said = asked().values
    growing = _grown(node, said.get("growth") or ())
    duration_ns = said.get("duration") or growing.duration_ns or Duration.parse(_DURATION).nanoseconds
    setting = setting_of(node.config, node.pods, usage, growing.growth, duration_ns=duration_ns)
    if setting is None:
        rule = "does not say how much memory the node has and has left: node.memory, or memory.available"
        raise InputError([Fault(source="--usage", rule=rule)])
    setting = replace(setting, assumed=growing.assumed)
    own = node.config.parts.policies.eviction or KUBELET
    known = registry(said.get("policies") or ()).of_kind(EvictionPolicy) if said.get("compare") else ()
    others = sorted(
        (one for one in known if one.name != own.name), key=lambda one: (one.name != KUBELET.name, one.name)
    )
    return Played(
        setting=setting,
        runs=tuple(played(setting, one) for one in (own, *others)),
        advice=advise(setting, own) if said.get("advise") else None,
        in_full=bool(said.get("timeline")),
    )


def _grown(node: Node, texts: Sequence[str]) -> Forecast:
    found, faults = Forecast(node.pods), list[Fault]()
    for text in texts:
        try:
            found.add(text)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return found
