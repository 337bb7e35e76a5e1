"""``verlock climb`` inside an environment: words into options, a climb, and its result for people or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from harness.adapt import verls
from harness.adapt.logs import LEVELS
from harness.console import Output
from harness.errors import OverrideError, Problem
from harness.evidence.model import Run
from harness.fingerprint.identity import holds_verl
from harness.ladder import contract, stopped
from harness.ladder.options import ORDER, TINY, Algorithm, Checkpoint, ClimbOptions, unknown
from harness.ladder.place import HERE
from harness.profiles.load import load

_CHOICES: dict[str, tuple[str, ...]] = {
    "first": ORDER,
    "last": ORDER,
    "rollout": ("hf", "mock"),
    "algorithm": get_args(Algorithm),
    "trainer": ("v1", "v0"),
    "checkpoint": get_args(Checkpoint),
    "log_level": ("", *LEVELS),
}
_FLAGS = {"first": "--from", "last": "--to", "log_level": "--log-level"}


def parse(
    *,
    trainer: str | None,
    without_patches: Sequence[str],
    overrides: Sequence[str],
    verl_source: Path | None,
    enforce: bool = False,
    ledger: bool = False,
    learn: bool = False,
    **given: Any,
) -> ClimbOptions:
    """Check the words of the command line; every wrong one is reported.

    Needs neither torch nor verl: a slip is told before an environment of gigabytes is made.
    """
    from harness.adapt.names import PATCH_NAMES

    stop_at, debugpy, pdb = (given.pop(name, None) for name in ("stop_at", "debugpy", "pdb"))
    software = load(given["profile"]).software
    offered = verls.trainers(software.verl)
    trainer = trainer or offered[0]
    words = {"log_level": "", "model": TINY, "data": TINY, **given, "trainer": trainer}
    problems = [
        unknown(_FLAGS.get(name, f"--{name}"), words[name], [choice for choice in choices if choice])
        for name, choices in _CHOICES.items()
        if words[name] not in choices
    ]
    problems += [
        Problem(what=f"--without-patch {name} names no patch", todo=f"one of: {', '.join(PATCH_NAMES)}")
        for name in without_patches
        if name not in PATCH_NAMES
    ]
    problems += [
        Problem(what=f"{text} is no Hydra override", todo="write key=value, or ~key to take one back")
        for text in overrides
        if "=" not in text and not text.startswith("~")
    ]
    if trainer in _CHOICES["trainer"] and trainer not in offered:
        since = verls.table().trainers[trainer]  # type: ignore[index]  # one of the choices
        problems.append(
            Problem(
                what=f"verl {software.verl} has no {trainer} trainer",
                why=f"it came with {since}",
                todo="leave --trainer out",
            )
        )
    if not verl_source:
        problems += verls.misplaced(overrides, software.verl)
    if enforce and ledger:
        problems.append(
            Problem(what="--enforce and --ledger together", todo="--ledger goes on, --enforce ends: choose")
        )
    if learn and (words["first"], words["last"]) != (ORDER[0], "ppo"):
        problems.append(
            Problem(what="--learn together with --from, --to or --full", todo="--learn has rungs of its own")
        )
    problems += [
        Problem(what=f"--{name} {path} is not there", todo=f"give {TINY}, or a path that exists")
        for name, path in (("model", words["model"]), ("data", words["data"]))
        if path != TINY and not Path(path).expanduser().exists()
    ]
    checkout = verl_source.expanduser().resolve() if verl_source else None
    if checkout and not holds_verl(checkout):
        problems.append(
            Problem(
                what=f"--verl-source {verl_source} is no checkout of verl",
                why="it has no verl/__init__.py",
                todo="name the folder that holds the folder verl",
            )
        )
    if pdb and (stop_at is None or debugpy is not None):
        problems.append(
            Problem(what="--pdb needs --break, without --debugpy", todo="--break FILE:LINE --pdb")
        )
    if problems:
        raise OverrideError(*problems)
    place = given.get("place", HERE)
    return ClimbOptions(
        **given,
        use_v1=trainer == "v1",
        contract=contract.mode(load(given["profile"]), place, enforce=enforce, ledger=ledger),
        without_patches=frozenset(without_patches),
        overrides=tuple(overrides),
        verl_source=checkout,
        stop=stopped.place(stop_at, debugpy, pdb=bool(pdb), checkout=checkout),
    )


def run(
    output: Output,
    complete: Callable[[Path], object],
    *,
    print_config: bool,
    device: str | None,
    compare: str | None,
    **words: Any,
) -> None:
    """Climb and report. Raises what the climb raises; the record is complete by then."""
    from harness.ladder import compare as comparing
    from harness.ladder import compose, origins
    from harness.ladder import learn as learning
    from harness.ladder.climb import climb, this_command
    from harness.ladder.rungs import rung

    options = parse(**words)
    stopped.usable(options.stop)
    devices = comparing.pair(device, compare, options)
    options.reward_function()
    if options.overrides:
        # Now, by themselves: a typo is told in two seconds, not after the first rungs.
        compose.check_values([text for text in options.overrides if not text.startswith("~")])
    if print_config:
        origins.show(options, output)
        return
    if devices:
        comparing.usable(devices.first)
        comparing.usable(devices.second)
        done = climb(options, comparing.steps(options, devices), output, this_command(), complete)
    elif words.get("learn"):
        options = learning.options_for(options)
        done = climb(options, learning.steps(options), output, this_command(), complete)
    else:
        done = climb(
            options, [(name, rung(name)) for name in options.rungs], output, this_command(), complete
        )
    folder = options.runs / done.id
    output.result(
        {"run": str(folder), **done.model_dump(mode="json", by_alias=True)},
        lambda: _tell(output, done),
    )


def _tell(output: Output, done: Run) -> None:
    peak = done.resources.peak_pss_bytes / 2**30
    output.line(
        f"{'rehearsed' if done.rehearsal else 'passed'}: {len(done.rungs)} rungs in {done.seconds:.0f} s; "
        f"peak memory of all processes {peak:.1f} GiB",
        style="bold green",
    )
