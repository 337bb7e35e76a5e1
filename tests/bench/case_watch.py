"""From a save to the verdict: `verlock watch` on a copy of verl, against a whole climb of the same rung."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Aim, Case
from place import Place, checked

EDITED = "verl/trainer/ppo/core_algos.py"
# What a user takes at least between a verdict and the next save; Ray comes up meanwhile.
READS_SECONDS = 20.0
AIMS = {"forward": 3.0, "ppo": 10.0}


def cases(place: Place) -> Iterator[Case]:
    """Each round saves a file of the checkout once, and climbs the rung once as if there were no watch."""
    folder = place.folder("watch")
    (verl,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]
    source = folder / "checkout"
    shutil.copytree(verl, source / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    for rung, aim in AIMS.items():
        with watching(folder, source, rung) as verdict:
            yield Case(
                id=f"watch-{rung}",
                what=f"save of verl's core_algos.py to the verdict of the {rung} rung",
                unit="s",
                sides={"watch": verdict, "climb": lambda rung=rung: climb(folder, source, rung)},
                rounds=3,
                aim=Aim(at_most=aim),
                notes=["watch: as the verdict itself says; climb: the whole command, with the fork server"],
            )


@contextmanager
def watching(folder: Path, source: Path, rung: str) -> Iterator[Callable[[], float]]:
    """A watch that has given its first verdict; what is yielded saves, and returns the next one's seconds."""
    words = ["watch", "--json", "--rung", rung, "--verl-source", str(source)]
    with (
        (folder / f"{rung}.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "harness", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):

        def verdict() -> float:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError((folder / f"{rung}.log").read_text()[-3000:])
            found = json.loads(line)
            if found["status"] != "passed":
                raise RuntimeError(str(found["failure"]))
            return float(found["seconds"])

        def saved() -> float:
            time.sleep(READS_SECONDS)
            with (source / EDITED).open("a") as file:
                file.write("#\n")
            return verdict()

        try:
            verdict()
            yield saved
        finally:
            process.send_signal(signal.SIGINT)


def climb(folder: Path, source: Path, rung: str) -> float:
    """The command that a user would type after the save."""
    path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])])
    words = ["climb", "--from", rung, "--to", rung, "--verl-source", str(source)]
    begin = time.perf_counter()
    checked(
        [sys.executable, "-P", "-m", "harness", *words], cwd=folder, env={**os.environ, "PYTHONPATH": path}
    )
    return time.perf_counter() - begin
