"""``verlock climb --print-config``: what verl is told, and by whom."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from harness.adapt import verls
from harness.console import Output
from harness.diagnose.diff import flat
from harness.ladder import compose
from harness.ladder.inputs import prepare
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import for_rung, words
from harness.profiles.load import load
from harness.profiles.model import Profile

Origin = Literal["verl default", "profile", "rung", "release", "user", "follows"]


@dataclass(frozen=True, kw_only=True)
class Value:
    """One leaf of the configuration. ``default`` is what verl has without any override."""

    key: str
    value: Any
    default: Any
    origin: Origin


def evaluate(
    config: Mapping[str, Any],
    default: Mapping[str, Any],
    layers: Mapping[Origin, Sequence[str]],
) -> list[Value]:
    """Pure. ``layers`` name the keys that each sets, the last one winning.

    ``release``: what an older verl needs beside what the profile and the rung say. ``follows``: nobody set it
    and it is not verl's default, because it refers to a key that was set.
    """
    set_by = {key.lstrip("+~"): origin for origin, keys in layers.items() for key in keys}
    found = []
    for key, value in config.items():
        before = default.get(key)
        origin = next((set_by[part] for part in _parents(key) if part in set_by), None)
        if origin is None:
            origin = "verl default" if before == value and key in default else "follows"
        found.append(Value(key=key, value=value, default=before, origin=origin))
    return found


def _parents(key: str) -> list[str]:
    """The key and the groups that it is in: an override may set a whole group."""
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def of_climb(options: ClimbOptions) -> list[Value]:
    """The configuration of the climb's trainer rung, composed as the climb would; nothing is started."""
    profile = load(options.profile)
    on_cpu = options.place.device == "cpu"
    with tempfile.TemporaryDirectory() as folder:
        inputs = prepare(options, Path(folder) / "inputs")
        rollout = "mock" if options.last == "ppo-mock" else options.rollout
        rung = for_rung(options, inputs, rollout=rollout, steps=options.steps)
        config = compose.compose_config(words(profile, rung, options.overrides, on_cpu=on_cpu))
        default = compose.compose_config([])
        return evaluate(
            _leaves(config, folder),
            _leaves(default, folder),
            layers(profile, rung, options.overrides, on_cpu=on_cpu),
        )


def layers(
    profile: Profile, rung: Mapping[str, object], overrides: Sequence[str], *, on_cpu: bool
) -> dict[Origin, list[str]]:
    """The keys that each layer sets, as the profile's verl writes them. Pure."""
    verl = profile.software.verl
    policy = {k: v for k, v in profile.overrides(rehearse=on_cpu).items() if _wins(k, rung)}
    said = verls.written({**policy, **rung}, verl)
    ours = verls.settings({**policy, **rung}, verl, on_cpu=on_cpu)
    return {
        "rung": list(verls.written(rung, verl)),
        "profile": list(verls.written(policy, verl)),
        "release": [key for key, value in ours.items() if said.get(key) != value],
        "user": [word.partition("=")[0] for word in overrides],
    }


def text(set_by: Mapping[Origin, Sequence[str]]) -> str:
    """``origins.json``: each key once, under the layer that set it last, the user's first."""
    owner = {key.lstrip("+~"): origin for origin, keys in set_by.items() for key in keys}
    shown: tuple[Origin, ...] = ("user", "release", "rung", "profile")
    return (
        json.dumps({o: sorted(k for k, owned in owner.items() if owned == o) for o in shown}, indent=2) + "\n"
    )


def _wins(key: str, rung: Mapping[str, object]) -> bool:
    """Whether the profile's value stands: a rung replaces it, but for what fits on the card."""
    return key not in rung or key.endswith("micro_batch_size_per_gpu")


def _leaves(config: Any, folder: str) -> dict[str, Any]:
    """Leaves by key; the run's own files are shown under the name that its folder will have."""
    return dict(flat(yaml.safe_load(compose.text(config).replace(folder, "runs/<id>"))))


def show(options: ClimbOptions, output: Output) -> None:
    """Print it: what somebody set first by key, verl's defaults counted; all of it with ``--json``."""
    values = of_climb(options)

    def human() -> None:
        chosen = [value for value in values if value.origin != "verl default"]
        width = max((len(value.key) for value in chosen), default=0)
        for value in chosen:
            output.line(f"{value.origin:8} {value.key:{width}} {value.value!r}   (verl: {value.default!r})")
        output.line(f"and {len(values) - len(chosen)} keys at verl's default; --json lists them all")

    output.result({"config": [vars(value) for value in values]}, human)
