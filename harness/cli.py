"""The command line: arguments in, one call into a room, one result out.

Rooms are imported inside the commands: ``verlock --help`` must not import torch, and a host without
the lock's packages must still be able to render, lock and read records.
"""

from __future__ import annotations

import errno
import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness import __version__
from harness.console import Output
from harness.errors import (
    DiskFullError,
    EngineError,
    InterruptedRunError,
    NotReproducibleError,
    VerlockError,
    WrongMachineError,
)

app = typer.Typer(
    name="verlock",
    help="Pinned, provable environments for verl, and the harness that proves them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"verlock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hold the options that come before a command."""


Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; fail if a committed file is not current.")
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[PROFILE]...", help="Profiles; all if none is named.")
]


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the hardware profiles."""
    from harness.profiles import load, names

    output = Output(as_json=as_json)
    found = [load(name) for name in names()]
    rows = [
        {"name": p.name, "short": p.short, "platform": p.hardware.platform, "summary": p.summary}
        for p in found
    ]

    def human() -> None:
        for row in rows:
            output.line(f"{row['name']:<12} {row['platform']:<12} {row['summary']}")

    output.result({"profiles": rows}, human)


@app.command()
def schema(check: Check = False, as_json: Json = False) -> None:
    """Generate the JSON Schema of the profile files, with which an editor completes and checks them."""
    from harness.build import files
    from harness.profiles import schema as generated

    changed = files.publish({generated.path(): generated.text()}, check=check, command="verlock schema")
    _changed(changed, Output(as_json=as_json))


@app.command()
def render(profiles: Names = None, check: Check = False, as_json: Json = False) -> None:
    """Render the Dockerfile and the overrides of each profile."""
    from harness.build.render import publish

    _changed(publish(profiles or (), check=check), Output(as_json=as_json))


@app.command()
def lock(profiles: Names = None, check: Check = False, as_json: Json = False) -> None:
    """Resolve each profile's software to hash-pinned locks, and check them against each other."""
    from harness.build.lock import lock as make

    output = Output(as_json=as_json)
    _changed(make(profiles or (), check=check, output=output), output)


@app.command()
def audit(
    profile: Annotated[str, typer.Argument(help="Whose GPU must run what the wheels hold.")],
    wheel: Annotated[
        list[Path] | None, typer.Option(help="Judge this wheel file; may be given several times.")
    ] = None,
    installed: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Judge what is installed for this interpreter.")
    ] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Judge samples of the locked wheels on the index (the default).")
    ] = False,
    torch: Annotated[
        str | None, typer.Option(help="With --remote: this version in place of the lock's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether the profile's GPU can run the CUDA libraries of its locked wheels, library by library."""
    from harness.build.audit.command import audit as run

    if sum([bool(wheel), bool(installed), remote or bool(torch)]) > 1:
        raise typer.BadParameter("--wheel, --installed and --remote (with --torch) exclude each other")
    output = Output(as_json=as_json)
    code = run(profile, output=output, wheels=wheel or (), installed=installed, torch=torch)
    raise typer.Exit(code)


@app.command()
def plan(
    profile: Annotated[str, typer.Argument(help="Whose locks are measured.")],
    check: Annotated[
        bool, typer.Option("--check", help="Fail where docker/budgets.yaml is exceeded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what a profile costs to download and on disk, by package, before anything happens."""
    from harness.build.plan import plan as run

    run(profile, check=check, output=Output(as_json=as_json))


@app.command()
def env(
    profile: Annotated[str, typer.Argument(help="Whose lock is installed.")],
    dev: Annotated[bool, typer.Option("--dev", help="Add the locked development tools.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make it anew, even if it is there.")] = False,
    as_json: Json = False,
) -> None:
    """Make the environment of a profile from its lock, if it is not there, and print its Python."""
    from harness.build.environment import ensure
    from harness.profiles import load

    output = Output(as_json=as_json)
    progress = Output(as_json=True)  # standard output carries the path alone: PYTHON=$(verlock env cpu)
    python = ensure(load(profile), output=progress, group="dev" if dev else None, fresh=fresh)
    output.result({"profile": load(profile).name, "python": str(python)}, lambda: output.line(str(python)))


@app.command()
def engine(as_json: Json = False) -> None:
    """Say which container engines are here, whether they can build images, and what is missing where not."""
    from harness.build.engine import choose, find

    output = Output(as_json=as_json)
    found = find()

    def human() -> None:
        for one in found:
            output.line(f"{one.title()}: {'can build' if one.usable else f'cannot build: {one.missing}'}")
            if one.remedy:
                output.line(f"  do: {one.remedy}")

    usable = [one.program for one in found if one.usable]
    if not usable and not as_json:
        choose(found)  # says of each what it lacks
    document = {"chosen": usable[0] if usable else None, "engines": [one.document() for one in found]}
    output.result(document, human)
    if not usable:
        raise typer.Exit(EngineError.exit_code)


@app.command()
def build(
    profile: Annotated[str, typer.Argument(help="Whose image is built.")],
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do every step again.")] = False,
    base_only: Annotated[bool, typer.Option("--base-only", help="Only make the base image.")] = False,
    update_base: Annotated[
        bool, typer.Option("--update-base", help="Take today's Debian packages, and lock them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build the profile's image and its canonical archive, dist/PROFILE/image.tar and image.json."""
    from harness.build.image.make import build as run

    output = Output(as_json=as_json)
    record = run(profile, update_base=update_base, base_only=base_only, no_cache=no_cache, output=output)
    output.result(record, lambda: output.line(f"built {json.dumps(record, indent=2)}", style="bold green"))


@app.command()
def prove(
    profile: Annotated[str, typer.Argument(help="Whose image is built twice.")], as_json: Json = False
) -> None:
    """Build the profile's image twice from nothing, and fail with each path in which the two differ."""
    from harness.build.image.prove import prove as run

    output = Output(as_json=as_json)
    proof = run(profile, output=output)
    same = f"proven: two builds, one digest, {proof['image']['manifest']}"
    output.result(proof, lambda: output.line(same, style="bold green"))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="An image archive.")],
    second: Annotated[Path, typer.Argument(help="Another.")],
    as_json: Json = False,
) -> None:
    """List each path in which two image archives differ, with the likely cause."""
    from harness.build.image.compare import compare as run

    output = Output(as_json=as_json)
    found = run(first, second)

    def human() -> None:
        for difference in found:
            output.line(difference.line())
        output.line(f"{len(found)} differences" if found else "the same image")

    document = {"identical": not found, "differences": [one.document() for one in found]}
    output.result(document, human)
    if found:
        raise typer.Exit(NotReproducibleError.exit_code)


def _changed(paths: list[Path], output: Output) -> None:
    from harness.build.files import shown

    def human() -> None:
        for path in paths:
            output.line(f"wrote {shown(path)}")
        if not paths:
            output.line("all current")

    output.result({"written": [shown(path) for path in paths]}, human)


@app.command()
def climb(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Hydra overrides; the last word is yours."),
    ] = None,
    profile: Annotated[str, typer.Option(help="Hardware profile.")] = "cpu",
    last: Annotated[str, typer.Option("--to", help="Highest rung.")] = "ppo",
    first: Annotated[str, typer.Option("--from", help="Lowest rung.")] = "env",
    rollout: Annotated[str, typer.Option(help="hf, or mock: no model behind it.")] = "hf",
    reward: Annotated[str, typer.Option(help="rule, mock, or PATH:FUNCTION.")] = "rule",
    model: Annotated[str, typer.Option(help="tiny, or a model folder.")] = "tiny",
    data: Annotated[str, typer.Option(help="tiny, or a Parquet file.")] = "tiny",
    algorithm: Annotated[str, typer.Option(help="ppo (with critic) or grpo.")] = "ppo",
    trainer: Annotated[str, typer.Option(help="verl's v1 trainer (its default) or v0.")] = "v1",
    seed: Annotated[int, typer.Option(help="Seed of model, data, rollout and training.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the ppo rung.")] = 4,
    learn: Annotated[
        bool, typer.Option("--learn", help="Instead of the rungs: three seeds must learn a task.")
    ] = False,
    verl_source: Annotated[
        Path | None, typer.Option(help="A verl checkout to lay over the locked verl.")
    ] = None,
    without_patch: Annotated[list[str] | None, typer.Option(help="Leave a patch out, by name.")] = None,
    fork: Annotated[
        bool, typer.Option(help="Fork Ray's workers from one process that has imported all (Linux, CPU).")
    ] = True,
    runs: Annotated[Path, typer.Option(help="Where run records go.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Climb the ladder up to verl's own PPO trainer, and leave a run record."""
    output = Output(as_json=as_json)
    _runs_here(profile)
    if not _inside(profile):
        from harness.build.enter import enter

        source = verl_source.expanduser().resolve() if verl_source else None
        enter(profile, sys.argv[1:], source=source, output=Output(as_json=True))
    from harness.evidence import report
    from harness.ladder.command import run

    def complete(folder: Path) -> None:
        report.write(folder)
        output.line(f"record: {folder} (run.json, report.html, metrics.jsonl, output.log)")

    run(
        output,
        complete,
        learn=learn,
        profile=profile,
        first=first,
        last=last,
        rollout=rollout,
        reward=reward,
        model=model,
        data=data,
        algorithm=algorithm,
        trainer=trainer,
        seed=seed,
        steps=steps,
        verl_source=verl_source,
        without_patches=without_patch or [],
        overrides=overrides or [],
        fork=fork,
        runs=runs,
    )


def _runs_here(profile: str) -> None:
    """Refuse a profile for a GPU before gigabytes are installed for it."""
    from harness.profiles import load

    wanted = load(profile)
    if wanted.run.device != "cpu":
        raise WrongMachineError(
            f"profile {wanted.name} trains on {wanted.run.device}, and a climb trains on the CPU",
            why="its lock and its contract are for the GPU; on a CPU they would prove something else",
            todo="climb the cpu profile here: nox -s smoke-cpu",
        )


def _inside(profile: str) -> bool:
    """Whether this interpreter is the profile's environment, made from the lock as it is now."""
    from harness.profiles import load, root

    try:
        marker = json.loads(Path(sys.prefix, "verlock-environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    wanted = load(profile)
    home = root() / "docker" / "rendered" / wanted.name
    return marker["profile"] == wanted.name and all(
        hashlib.sha256((home / name).read_bytes()).hexdigest() == digest
        for name, digest in marker["locks"].items()
    )


def main() -> None:
    """Run the command line; a :class:`VerlockError` becomes a message and its exit code."""
    output = Output(as_json="--json" in sys.argv[1:])
    try:
        app()
    except VerlockError as error:
        output.error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        told = InterruptedRunError("interrupted", todo="start it again")
        output.error(told)
        sys.exit(told.exit_code)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        full = DiskFullError("no space left to write the output", why=str(error), todo="free some space")
        output.error(full)
        sys.exit(full.exit_code)


if __name__ == "__main__":
    main()
