"""The climb: in the profile's own environment, which is made and entered first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands import again
from harness.commands.common import (
    Algorithm,
    Json,
    Seed,
    Steps,
    Trainer,
    Verl,
    WithoutPatch,
    go_inside,
    inside,
)
from harness.console import Output
from harness.profiles.releases import named

if TYPE_CHECKING:
    from harness.ladder.place import Place


def climb(
    context: typer.Context,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Hydra overrides; the last word is yours."),
    ] = None,
    profile: Annotated[str, typer.Option(help="Hardware profile.")] = "cpu",
    verl: Verl = None,
    last: Annotated[str, typer.Option("--to", help="Highest rung.")] = "ppo",
    first: Annotated[str, typer.Option("--from", help="Lowest rung.")] = "env",
    full: Annotated[bool, typer.Option("--full", help="All rungs, up to ppo-2ranks.")] = False,
    rollout: Annotated[str, typer.Option(help="hf, or mock: no model behind it.")] = "hf",
    reward: Annotated[str, typer.Option(help="rule, mock, or PATH:FUNCTION.")] = "rule",
    checkpoint: Annotated[
        str, typer.Option(help="disk; mock: without weights and optimiser; none: leave the rung out.")
    ] = "disk",
    model: Annotated[str, typer.Option(help="tiny, or a model folder.")] = "tiny",
    data: Annotated[str, typer.Option(help="tiny, or a Parquet file.")] = "tiny",
    algorithm: Algorithm = "ppo",
    trainer: Trainer = None,
    seed: Seed = 1,
    steps: Steps = 4,
    learn: Annotated[
        bool, typer.Option("--learn", help="Instead of the rungs: three seeds must learn a task.")
    ] = False,
    verl_source: Annotated[
        Path | None, typer.Option(help="A verl checkout to lay over the locked verl.")
    ] = None,
    without_patch: WithoutPatch = None,
    fork: Annotated[
        bool, typer.Option(help="Fork Ray's workers from one process that has imported all (Linux, CPU).")
    ] = True,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print verl's configuration and who set each value; start nothing."
        ),
    ] = False,
    deadline: Annotated[
        float | None, typer.Option(min=1, help="Seconds that a rung may take; by its kind if not given.")
    ] = None,
    silence: Annotated[
        float,
        typer.Option(min=1, help="Seconds that the trainer may say nothing before it counts as hanging."),
    ] = 900.0,
    stop_at: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="PLACE[@ROLE[:RANK]]",
            help="FILE:LINE, CLASS or CLASS.METHOD: who comes there writes its stack and locals.",
        ),
    ] = None,
    pdb: Annotated[
        bool, typer.Option("--pdb", help="With --break: pdb waits there, on an address that is printed.")
    ] = False,
    debugpy: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE", help="debugpy waits in this role (a class), or with --break at its place."
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="Of verl's loggers: debug, info, warning or error.")] = "",
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="On this CPU, under the profile's own lock, policy and contract."),
    ] = False,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="End at the first thing that the profile forbids.")
    ] = False,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Count and record what the profile forbids; go on.")
    ] = False,
    native: Annotated[
        bool,
        typer.Option(
            "--native", help="In an environment made from the lock; a GPU profile's default is its image."
        ),
    ] = False,
    image: Annotated[
        bool, typer.Option("--image", help="In the profile's image, without a network or a writable root.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="With --compare: cpu, mps or cuda; the first rungs run there too.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="The device that --device is compared with, rung by rung.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where run records go.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Climb the ladder up to verl's own PPO trainer, and leave a run record."""
    output = Output(as_json=as_json)
    profile = named(profile, verl)
    place = _place(profile, rehearse=rehearse)
    if image and native:
        raise typer.BadParameter("--image and --native exclude each other")
    asked: dict[str, Any] = {
        "profile": profile,
        "first": first,
        "last": "ppo-2ranks" if full else last,
        "learn": learn,
        "rollout": rollout,
        "reward": reward,
        "checkpoint": checkpoint,
        "model": model,
        "data": data,
        "algorithm": algorithm,
        "trainer": trainer,
        "seed": seed,
        "steps": steps,
        "verl_source": verl_source,
        "without_patches": without_patch or [],
        "overrides": overrides or [],
        "fork": fork,
        "deadline": deadline,
        "silence": silence,
        "stop_at": stop_at,
        "pdb": pdb,
        "debugpy": debugpy,
        "log_level": log_level,
        "runs": runs,
        "place": place,
        "enforce": enforce,
        "ledger": ledger,
    }
    from harness.ladder.command import parse, run

    parse(**asked)
    if image or (place.device == "cuda" and not native and not inside(profile)):
        raise typer.Exit(_in_image(context, output, gpus=place.device == "cuda"))
    go_inside(profile, source=verl_source, group="dev" if debugpy else None)
    from harness.evidence import report

    def complete(folder: Path) -> None:
        report.write(folder)
        output.line(f"record: {folder} (run.json, report.html, metrics.jsonl, output.log)")

    run(output, complete, device=device, compare=compare, print_config=print_config, **asked)


def _in_image(context: typer.Context, output: Output, *, gpus: bool) -> int:
    """The same climb in the profile's image, with every path of this machine written whole."""
    from harness.build.image.climb import Climb, climb, whole

    given = context.params
    paths = {name: whole(given[name], words=["tiny"]) for name in ("model", "data")}
    file, _, function = given["reward"].rpartition(":")
    reward = whole(file, words=[""])
    source = whole(str(given["verl_source"] or ""), words=[""])
    runs = Path(given["runs"]).expanduser().absolute()  # as it was typed: a string, unless it is the default
    changes = {name: str(path) for name, path in paths.items() if path} | {"runs": runs}
    changes |= {"reward": f"{reward}:{function}"} if reward else {}
    changes |= {"verl_source": source} if source else {}
    asked = Climb(
        profile=named(given["profile"], given["verl"]),
        command=tuple(again.words(context, changes, without={"image", "native"})),
        runs=runs,
        inputs=tuple(path for path in (*paths.values(), reward) if path),
        overrides=tuple(given["overrides"] or ()),
        verl_source=source,
        gpus=gpus,
    )
    return climb(asked, output)


def _place(profile: str, *, rehearse: bool) -> Place:
    """Where to run; a machine that does not fit is refused before gigabytes are installed for it."""
    from harness.ladder.place import Sight, decide, look
    from harness.profiles import load

    wanted = load(profile)
    needs_gpu = wanted.run.device == "cuda" and not rehearse
    return decide(wanted, look() if needs_gpu else Sight(), rehearse=rehearse)
