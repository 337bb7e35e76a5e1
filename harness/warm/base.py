"""What stays warm between the runs of a watch: all that verl imports, without verl itself.

``python -P -m harness.warm.base SERVICES-ADDRESS RUNS-ADDRESS``. For each state of the code it forks a
*generation*: a fork server that imports verl anew, in 0.5 s instead of 5, and whose children are a run's
climb, driver and workers. So no process ever holds an old module beside a new one, whatever was bound where.
The names of what to keep are learnt from the first generation, which imports all.

Commands come as lines on standard input, and each is answered with one JSON line; Ray's own services and the
process that starts Ray are forked from here, because they outlive a generation.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from harness.evidence import events
from harness.warm import preload, ray_hooks, wire
from harness.warm.server import Server, environment, settle
from harness.warm.standin import tie

# verl, what the user changes; and the harness, whose modules hold verl's.
_ANEW = frozenset({"verl", "harness", "__main__", "__mp_main__"})
_FREE_SECONDS = 5.0


class Base(Server):
    """A server for what outlives a generation; makes the generations."""

    def __init__(self, services: str, runs: str, answers: int) -> None:
        """``services`` and ``runs`` are the addresses, ``answers`` the descriptor that takes them."""
        super().__init__(wire.listen(services), [], environment())
        self._runs = runs
        self._answers = answers
        self._generation = 0
        self._bare = True
        self._commands = os.fdopen(os.dup(0), encoding="utf-8")
        self._selector.register(self._commands, selectors.EVENT_READ, self._command)

    def _command(self) -> None:
        line = self._commands.readline()
        if not line:
            sys.exit(0)
        answer = self._new_generation()
        learnt = answer.pop("modules", [])
        self._answer(answer)
        if self._bare and learnt:
            self._learn(learnt)

    def _answer(self, answer: dict[str, Any]) -> None:
        os.write(self._answers, (json.dumps(answer) + "\n").encode())

    def _new_generation(self) -> dict[str, Any]:
        """End the old generation and all that was forked from it, and make a new one."""
        if self._generation:
            os.kill(self._generation, signal.SIGKILL)
            os.waitpid(self._generation, 0)
            self._generation = 0
        listener = self._free()
        reader, writer = os.pipe()
        base = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.close(self._answers)
            self._commands.close()
            self._forget(None)
            _generation(listener, writer, self._before, base)
        listener.close()
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as told:
            text = told.read()
        answer = json.loads(text) if text else {"stack": ""}
        if not text:
            answer["error"] = f"verl's import ended the process: {_ending(os.waitpid(pid, 0)[1])}"
        elif "error" in answer:
            os.waitpid(pid, 0)
        else:
            self._generation = pid
        return {"pid": pid, **answer}

    def _free(self) -> Any:
        """The runs' address: the old generation's children end within moments of it."""
        deadline = time.monotonic() + _FREE_SECONDS
        while True:
            try:
                return wire.listen(self._runs)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _learn(self, names: Iterable[str]) -> None:
        """Import what the first generation imported besides verl."""
        ray_hooks.before_imports()
        with preload.quietly():
            for name in names:
                # A module that only exists while another is imported is no loss: a generation imports it.
                with suppress(ImportError):
                    import_module(name)
        problem = settle()
        if problem:
            events.emit("fork_server", ready=False, reason=problem)
            sys.exit(1)
        self.imported()
        self._bare = False
        events.emit("watch_warm", modules=len(sys.modules))


def _generation(listener: Any, writer: int, before: dict[str, str], base: int) -> NoReturn:
    """Import verl as it is on disk now, tell the base how that went, and serve."""
    tie(base)
    # Byte code is kept by a file's second and size: a sign flipped twice within one would not be seen, and
    # nothing is to be written to the user's checkout. Compiling verl's 200 modules costs 0.1 s.
    sys.dont_write_bytecode = True
    sys.pycache_prefix = os.devnull
    began, there = time.monotonic(), set(sys.modules)
    try:
        missing, outcomes = preload.apart({"verl"}, strict=True)
        problem = settle()
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises is the verdict
        _tell(writer, {"error": _short(error), "stack": traceback.format_exc()})
        os._exit(1)
    if problem:
        _tell(writer, {"error": problem, "stack": ""})
        os._exit(1)
    names = [n for n in sys.modules if n not in there and n.partition(".")[0] not in _ANEW]
    seconds = round(time.monotonic() - began, 3)
    _tell(writer, {"seconds": seconds, "modules": names, "not_imported": missing})
    Server(listener, outcomes, before).serve()
    os._exit(0)


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _short(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def _tell(writer: int, answer: dict[str, Any]) -> None:
    with os.fdopen(writer, "w", encoding="utf-8") as file:
        json.dump(answer, file)


def main(services: str, runs: str) -> None:
    """Serve until standard input ends. What was standard output takes the answers, and is nobody else's."""
    answers = os.dup(1)
    os.dup2(2, 1)
    problem = ray_hooks.installed_problem()
    os.write(answers, (json.dumps({"error": problem} if problem else {"ready": True}) + "\n").encode())
    if not problem:
        Base(services, runs, answers).serve()


if __name__ == "__main__":
    main(*sys.argv[1:3])
