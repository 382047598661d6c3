"""A timeline as a document: all its moments with their numbers, the lines of the plot, the advice.

Units: nanoseconds in moments; seconds and bytes in the lines.
"""

from collections.abc import Sequence
from typing import Any

from nodewright.model.profile import API_VERSION
from nodewright.node.config import NodeConfig
from nodewright.render.documents import fact_document
from nodewright.render.eviction_messages import eviction_message
from nodewright.render.policies import policies_document
from nodewright.render.timeline import MODEL, Played, first_word, moment_sentence
from nodewright.sim.timeline.advise import Advice
from nodewright.sim.timeline.moments import EvictionBegun, Moment, Timeline


def timeline_document(played: Played, config: NodeConfig, *, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The runs and the advice as one document."""
    setting = played.setting
    return {
        "apiVersion": API_VERSION,
        "kind": "EvictionTimeline",
        "node": config.facts.name,
        "kubernetesVersion": config.release.release.text,
        "rulesOf": config.release.rules_of,
        **policies_document(config),
        "durationSeconds": setting.duration_ns / 10**9,
        "assumptions": fact_document(setting.assumed),
        "growth": [fact_document(one) for one in setting.growth],
        "runs": [run_document(run) for run in played.runs],
        "advice": None if played.advice is None else _advice(played.advice),
        "model": MODEL,
        "notPlayed": ["nodefs", "imagefs", "containerfs", "inodes", "pid"],
        "warnings": list(warnings),
    }


def run_document(run: Timeline) -> dict[str, Any]:
    """One run."""
    crossed = run.first_crossing_ns
    return {
        "policy": run.policy,
        "about": run.about,
        "first": first_word(run),
        "lost": run.is_lost,
        "looks": run.looks,
        "crossedSeconds": None if crossed is None else crossed / 10**9,
        "lowestAvailableBytes": run.lowest_available_bytes,
        "lostCPUSeconds": run.lost_cpu_s,
        "beyondNeedBytes": run.beyond_need_bytes,
        "evicted": [one.pod for one in run.evictions],
        "killed": [one.pod for one in run.kernel_kills],
        "moments": [_moment(one) for one in run.moments],
        "available": [[at_ns / 10**9, amount] for at_ns, amount in run.available],
    }


def _moment(moment: Moment) -> dict[str, Any]:
    document = {**fact_document(moment), "atSeconds": moment.at_ns / 10**9, "text": moment_sentence(moment)}
    if isinstance(moment, EvictionBegun):
        document["message"] = eviction_message(moment.because)
    return document


def _advice(advice: Advice) -> dict[str, Any]:
    amount = advice.threshold_bytes
    hard = {} if not amount else {"evictionHard": {"memory.available": str(amount)}}
    return {
        "policy": advice.policy,
        "thresholdBytes": amount,
        "nowBytes": advice.now_bytes,
        "stepBytes": advice.step_bytes,
        "kubeletConfiguration": hard,
        "reservedBytes": advice.reserved_bytes,
        "won": None if advice.won is None else run_document(advice.won),
        "lost": None if advice.lost is None else run_document(advice.lost),
        "tried": [
            {
                "thresholdBytes": one.threshold_bytes,
                "lost": one.is_lost,
                "lowestAvailableBytes": one.worst.lowest_available_bytes,
            }
            for one in advice.tried
        ],
    }
