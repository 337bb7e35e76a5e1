"""``verlock watch``: a verdict after each save. It stays on the host side, and climbs in the environment."""

# ruff: noqa: ARG001 - the options are read from the context, which passes them on to the climb

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands import again
from harness.commands.common import Algorithm, Seed, Steps, Trainer, WithoutPatch, inside
from harness.console import AlreadyToldExit, Output
from harness.errors import InterruptedRunError, OverrideError, Problem, WrongMachineError

if TYPE_CHECKING:
    from harness.warm.changes import Watched
    from harness.warm.loop import Asked

# Not the climb's, or with another default than there.
_OWN = frozenset({"rung", "last", "runs", "steps", "as_json"})


def watch(
    context: typer.Context,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Hydra overrides; the last word is yours."),
    ] = None,
    rung: Annotated[
        str | None, typer.Option(help="Only this rung, each time; else the one that failed, then upwards.")
    ] = None,
    last: Annotated[str, typer.Option("--to", help="Highest rung.")] = "ppo",
    verl_source: Annotated[
        Path | None, typer.Option(help="Your verl checkout, laid over the locked verl and watched.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Hardware profile, one for a CPU.")] = "cpu",
    reward: Annotated[str, typer.Option(help="rule, mock, or PATH:FUNCTION; the file is watched.")] = "rule",
    model: Annotated[str, typer.Option(help="tiny, or a model folder; its files are watched.")] = "tiny",
    data: Annotated[str, typer.Option(help="tiny, or a Parquet file, which is watched.")] = "tiny",
    algorithm: Algorithm = "ppo",
    trainer: Trainer = None,
    seed: Seed = 1,
    # The ppo rung checks each step and each update of weights: two show what four do, a second sooner.
    steps: Steps = 2,
    without_patch: WithoutPatch = None,
    runs: Annotated[Path, typer.Option(help="Where run records go.")] = Path("runs"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document a verdict, each in a line.")
    ] = False,
) -> None:
    """Rerun what failed at each save of verl, reward or data, within seconds; Ctrl-C ends it."""
    output = Output(as_json=as_json)
    watched = _watched(context)
    asked = _asked(context)
    from harness.ladder.options import known_rung
    from harness.warm.changes import Changes
    from harness.warm.loop import Loop
    from harness.warm.plan import Plan

    plan = Plan(only=known_rung("--rung", rung) if rung is not None else None, last=known_rung("--to", last))
    folder = Path(tempfile.mkdtemp(prefix=f"vl-{os.getpid()}-"))
    # Both: a shell that starts this in the background has it ignore Ctrl-C.
    asked_to_end = (signal.SIGINT, signal.SIGTERM)
    before = {signum: signal.signal(signum, signal.default_int_handler) for signum in asked_to_end}
    try:
        with Loop(asked, plan, watched, output, folder) as loop, Changes(watched, loop.events):
            loop.forever()
    except KeyboardInterrupt:
        if as_json:  # each line so far was a verdict, and none is added
            raise AlreadyToldExit(InterruptedRunError.exit_code) from None
        raise InterruptedRunError(
            "the watch was ended", todo="start it again; the records are kept"
        ) from None
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        shutil.rmtree(folder, ignore_errors=True)


def _asked(context: typer.Context) -> Asked:
    """What is watched with; all that is wrong with the words is told before anything is started."""
    from harness.adapt.settings import Settings
    from harness.evidence.record import new_id
    from harness.fingerprint.identity import parts
    from harness.ladder.environment import child, variables
    from harness.profiles import load
    from harness.warm.fork import unfit
    from harness.warm.loop import Asked

    given = context.params
    profile = load(given["profile"])
    if sys.platform != "linux" or profile.run.device != "cpu":
        raise WrongMachineError(
            "watch keeps a CPU run's processes warm, on Linux",
            why=f"profile {profile.name} runs on {profile.run.device}, and this is {sys.platform}",
            todo="climb instead: verlock climb --from RUNG",
        )
    source = _whole(given["verl_source"])
    if source is not None:
        parts(profile, source)  # refuses a folder that is no checkout
    python, environ = _environment(given["profile"], source)
    settings = Settings(
        attention=profile.numerics.attention, without_patches=frozenset(given["without_patch"] or [])
    )
    tied = {"VERLOCK_RUN_ID": new_id()}
    environ = child({**environ, **variables(profile, settings, tied)}, "cpu")
    own_ray = any("ray_kwargs" in word for word in given["overrides"] or [])
    on_cpu = profile.overrides(rehearse=True)
    counts = [
        int(str(on_cpu[key])) for key in ("ray_kwargs.ray_init.num_cpus", "+ray_kwargs.ray_init.num_gpus")
    ]
    words = again.words(context, {"verl_source": source} if source else {}, without=_OWN)[1:]
    return Asked(
        python=python,
        environ=environ,
        words=(f"--runs={given['runs']}", f"--steps={given['steps']}", *words),
        source=source,
        ray=None if own_ray else (counts[0], counts[1]),
        reason=unfit("cpu", environ),
    )


def _environment(profile: str, source: Path | None) -> tuple[Path, dict[str, str]]:
    from harness.profiles import root

    if inside(profile):
        path = os.pathsep.join(str(folder) for folder in (source, root()) if folder)
        return Path(sys.executable), {**os.environ, "PYTHONPATH": path}
    from harness.build.enter import prepared

    return prepared(profile, source=source, output=Output(as_json=True))


def _whole(path: Path | str | None) -> Path | None:
    return Path(path).expanduser().resolve() if path else None


def _watched(context: typer.Context) -> Watched:
    """The checkout's verl, and the files of reward, data and model where they are the user's.

    Judges the rungs' names too, so that all mistakes come at once and before an environment is made.
    """
    from harness.ladder.options import ORDER, unknown
    from harness.warm.changes import Watched

    given = context.params
    file, _, function = str(given["reward"]).rpartition(":")
    ours = given["reward"] in {"rule", "mock"}
    named = [file, *(given[name] for name in ("data", "model") if given[name] != "tiny")]
    files = [path for path in map(_whole, named) if path is not None]
    rungs = {"--rung": given["rung"] or ORDER[0], "--to": given["last"]}
    problems = [unknown(option, name, ORDER) for option, name in rungs.items() if name not in ORDER]
    if given["rung"] and given["last"] != "ppo":
        problems.append(
            Problem(
                what="--rung and --to together", todo="--rung is this rung alone, --to the highest: choose"
            )
        )
    if not ours and not (file and function):
        problems.append(
            Problem(what=f"--reward {given['reward']} is no reward", todo="give mock, rule, or PATH:FUNCTION")
        )
    problems += _climbs(given)
    problems += [
        Problem(what=f"no such file: {path}", todo="give one that is there: it is watched")
        for path in files
        if not path.exists()
    ]
    source = _whole(given["verl_source"])
    if source is None and not files and ours:
        problems.append(
            Problem(
                what="there is nothing to watch",
                why="verl, reward, data and model are all verlock's own",
                todo="give --verl-source PATH, --reward PATH:FUNCTION, --data PATH or --model PATH",
            )
        )
    if problems:
        raise OverrideError(*problems)
    return Watched(trees=(source / "verl",) if source else (), files=tuple(files))


def _climbs(given: dict[str, Any]) -> list[Problem]:
    """What the climb would refuse of the words that it gets, except for files, which are watched."""
    from harness.ladder.command import parse

    names = ("profile", "algorithm", "trainer", "reward", "seed", "steps")
    words: dict[str, Any] = {name: given[name] for name in names}
    words["verl_source"] = Path(given["verl_source"]) if given["verl_source"] else None
    words |= {"without_patches": given["without_patch"] or [], "overrides": given["overrides"] or []}
    try:
        parse(**words, first="env", last="ppo", rollout="hf", checkpoint="disk")
    except OverrideError as error:
        return list(error.problems)
    return []
