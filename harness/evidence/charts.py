"""The plots of a report: verl's own metrics, the spread of its samples, memory and GPUs, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.evidence import metrics
from harness.evidence.health import points, samples
from harness.evidence.health.samples import Spread
from harness.evidence.metrics import Step
from harness.evidence.plot import line_plot, number

# verl 0.9.1's names (trainer/ppo/metric_utils.py and the workers); a run shows those that it has.
PLOTS = {
    "critic/score/mean": "Mean reward",
    "actor/pg_loss": "Actor loss",
    "actor/grad_norm": "Actor gradient norm",
    "critic/vf_loss": "Critic loss",
    "critic/grad_norm": "Critic gradient norm",
    "critic/vf_explained_var": "Explained variance of the critic",
    "actor/kl_loss": "KL loss against the reference",
    "actor/ppo_kl": "KL between old and new policy",
    "actor/entropy": "Entropy",
    "actor/pg_clipfrac": "Share of clipped tokens",
    "training/rollout_probs_diff_max": "Largest difference of probabilities, rollout against trainer",
    "response_length/mean": "Response length (tokens: mean, least to greatest)",
    "response_length/clip_ratio": "Share of responses that reach the limit",
    "perf/time_per_step": "Seconds per step",
}
_FALLBACK = {"critic/score/mean": "critic/rewards/mean"}
_BANDS = {
    "response_length/mean": ("response_length/min", "response_length/max"),
    "critic/score/mean": ("critic/score/min", "critic/score/max"),
}
_PROCESSES = 8
_MEASURES = {
    "private": "In MiB, what a process has alone: what a forked one shared with its parent after the first "
    "step is not in it, nor are libraries and Ray's object store. All together are below, under Memory.",
    "resident": "In MiB, all that is resident, with libraries and what is shared.",
    "anonymous": "In MiB, with all that a forked process shares with its parent: in a sum it counts "
    "several times.",
}
_GPU = {
    "utilisation_percent": ("utilisation in %", 1),
    "memory_bytes": ("memory in MiB", 2**20),
    "pcie_sent_bytes_per_second": ("sent over PCIe, MiB/s", 2**20),
    "pcie_received_bytes_per_second": ("received over PCIe, MiB/s", 2**20),
}
Plot = dict[str, str]


def of_metrics(steps: Sequence[Step]) -> list[Plot]:
    """Those of :data:`PLOTS` that were logged."""
    shown = []
    for key, name in PLOTS.items():
        source = next((k for k in (key, _FALLBACK.get(key, key)) if metrics.column(steps, k)), key)
        drawn = metrics.column(steps, source)
        low, high = (dict(metrics.column(steps, k)) for k in _BANDS.get(key, ("", "")))
        band = [(step, low[step], high[step]) for step in low if step in high]
        shown.append(_plot(drawn, name, source, band))
    return [plot for plot in shown if plot["svg"]]


def of_samples(folder: Path) -> list[Plot]:
    """Deviation of the rewards and length of the texts, in training and on validation samples."""
    shown = []
    for kind, name in samples.FOLDERS.items():
        spreads = samples.read(folder / name)
        shown += _spread(kind, f"{name}/", spreads)
    return [plot for plot in shown if plot["svg"]]


def _spread(kind: str, source: str, spreads: Sequence[Spread]) -> list[Plot]:
    means = [(s.step, s.reward_mean) for s in spreads] if kind == "validation" else []
    return [
        _plot(means, "Mean reward, validation", source),
        _plot([(s.step, s.reward_std) for s in spreads], f"Deviation of rewards, {kind}", source),
        _plot(
            [(s.step, float(s.characters[2])) for s in spreads],
            f"Response length, {kind} (characters: median, first to last decile)",
            source,
            [(s.step, float(s.characters[1]), float(s.characters[3])) for s in spreads],
        ),
    ]


def _of_last_run(happened: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """The events of this kind of the last trainer run that has any: a climb has several."""
    seen = [event for event in happened if event.get("kind") == kind]
    return [event for event in seen if event.get("rung") == seen[-1].get("rung")]


def of_memory(happened: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """The processes that grew most, in MiB, of the last trainer run that was watched."""
    series: dict[str, list[tuple[int, float]]] = {}
    for event in _of_last_run(happened, points.MEMORY_EVENT):
        for name, used in event["bytes"].items():
            series.setdefault(name, []).append((int(event["step"]), used / 2**20))
    grown = sorted(series, key=lambda name: series[name][0][1] - series[name][-1][1])
    return [_plot(series[name], name, "") for name in grown[:_PROCESSES]]


def measure_of_memory(happened: Sequence[Mapping[str, Any]]) -> str:
    """What the bytes of :func:`of_memory` are; records of an older verlock do not say."""
    seen = [str(event.get("measure")) for event in _of_last_run(happened, points.MEMORY_EVENT)]
    return _MEASURES.get(seen[-1] if seen else "", _MEASURES["anonymous"])


def of_gpus(happened: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """What NVML told of each GPU, of the last trainer run that was watched."""
    series: dict[str, list[tuple[int, float]]] = {}
    for event in _of_last_run(happened, points.GPU_EVENT):
        for gpu in event["gpus"]:
            for key, (name, unit) in _GPU.items():
                if gpu[key] is not None:
                    told = f"GPU {gpu['index']} ({gpu['name']}): {name}"
                    series.setdefault(told, []).append((int(event["step"]), gpu[key] / unit))
    return [_plot(drawn, name, "") for name, drawn in series.items()]


def _plot(
    drawn: Sequence[tuple[int, float]],
    name: str,
    source: str,
    band: Sequence[tuple[int, float, float]] = (),
) -> Plot:
    last = number(drawn[-1][1]) if drawn else ""
    return {"name": name, "key": source, "svg": line_plot(drawn, name=name, band=band), "last": last}
