"""The command line: the commands put together, and an error turned into a message and its exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from harness import __version__
from harness.commands import (
    claims,
    climb,
    compat,
    data,
    deps,
    doctor,
    failures,
    fingerprint,
    handoff,
    history,
    images,
    plan,
    preflight,
    profiles,
    records,
    reward,
    train,
    update,
    watch,
    wheels,
)
from harness.console import AlreadyToldExit, Output
from harness.errors import DiskFullError, HangError, InterruptedRunError, UsageError, VerlockError

# The parent of every error in options and arguments; typer exports only this leaf of it.
_MISUSE: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="verlock",
    help="Pinned, provable environments for verl, and the harness that proves them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


# In the order in which `verlock --help` lists them.
for command in (
    climb.climb,
    watch.watch,
    compat.compat,
    preflight.preflight,
    failures.diagnose,
    failures.diff,
    failures.localise,
    history.bisect,
    records.replay,
    records.bundle,
    records.report,
    doctor.doctor,
    train.train,
    profiles.profiles,
    profiles.schema,
    profiles.render,
    profiles.lock,
    claims.claims,
    wheels.audit,
    deps.deps,
    wheels.env,
    fingerprint.fingerprint,
    images.engine,
    images.build,
    images.prove,
    images.compare,
    update.update,
):
    app.command()(command)
app.command("next")(records.next_)
app.add_typer(plan.app, name="plan")
app.add_typer(data.app, name="data")
app.add_typer(reward.app, name="reward")
app.add_typer(handoff.app, name="handoff")


def main() -> None:
    """Run the command line; a :class:`VerlockError` becomes a message and its exit code."""
    output = Output(as_json="--json" in sys.argv[1:])
    _ask_to_stop_is_ctrl_c()
    code: Any
    try:
        # With --json an unknown option must be a document too; for people typer's own box is the best.
        code = app(standalone_mode=not output.as_json)
    except AlreadyToldExit:
        raise
    except SystemExit as end:
        code = end.code
    except VerlockError as error:
        _end(output, error)
    except _MISUSE as error:
        _end(output, UsageError(error.format_message(), todo="verlock COMMAND --help lists what there is"))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        full = DiskFullError("no space left to write the output", why=str(error), todo="free some space")
        _end(output, full)
    if code == InterruptedRunError.exit_code:  # what typer makes of Ctrl-C, with no word
        _end(output, InterruptedRunError("interrupted", todo="start it again"))
    sys.exit(code if isinstance(code, int) else 0)


def _ask_to_stop_is_ctrl_c() -> None:
    """What CI, systemd and a closed terminal send cleans up as Ctrl-C does; nohup's ignoring stays."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, _stop)


def _stop(signum: int, _frame: FrameType | None) -> NoReturn:
    """As Python does on SIGINT, with the name of what it was."""
    raise KeyboardInterrupt(signal.Signals(signum).name)


def _held_up() -> bool:
    """Whether a thread is still at work for which the interpreter waits."""
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    return any(not thread.daemon for thread in others)


def _end(output: Output, error: VerlockError) -> NoReturn:
    output.error(error)
    if isinstance(error, HangError) or (isinstance(error, InterruptedRunError) and _held_up()):
        # A thread that never ends, such as one that waits for a debugger, would hold up the interpreter.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
