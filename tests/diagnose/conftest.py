"""How a log is spoilt on its way to us, and what the tests of this room share."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from harness.diagnose import catalogue
from harness.diagnose.catalogue import Catalogue
from harness.diagnose.diagnose import diagnose_lines
from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.host import Host
from harness.diagnose.lines import parse
from harness.diagnose.match import Evidence

Spoil = Callable[[str, random.Random], str]


@pytest.fixture(scope="session")
def known() -> Catalogue:
    return catalogue.load()


@pytest.fixture(scope="session")
def told(known: Catalogue) -> Callable[..., Diagnosis]:
    """Diagnose a text, with facts of its host where a test gives them."""

    def run(text: str, host: Host | None = None) -> Diagnosis:
        return diagnose_lines(parse(text), known, Evidence(host=host or Host()))

    return run


PREFIX = "\x1b[36m({role} pid={pid}, ip=10.{a}.{b}.{c})\x1b[0m "


def paths(text: str, rng: random.Random) -> str:
    """Other users, other folders."""
    root = rng.choice(["/home/alice/rl", "/mnt/nfs/team-7/code", "/opt/conda/envs/verl/lib", "/scratch/u123"])
    return re.sub(r"/home/user/run|/opt/venv/lib", root, text)


def ranks(text: str, rng: random.Random) -> str:
    """Other process numbers, addresses and ids, each the same wherever it stands."""
    new: dict[str, str] = {}

    def renamed(pattern: str, made: Callable[[], str]) -> None:
        nonlocal text
        text = re.sub(pattern, lambda found: new.setdefault(found[0], made()), text)

    renamed(r"\bpid=\d+", lambda: f"pid={rng.randint(100, 4_000_000)}")
    renamed(r"\bip=[\d.]+", lambda: f"ip=10.{rng.randint(0, 255)}.3.{rng.randint(1, 250)}")
    renamed(r"0x[0-9a-f]{6,}", lambda: f"0x{rng.getrandbits(40):x}")
    return text


def coloured(text: str, rng: random.Random) -> str:
    """Colours around what has none, and bytes that no terminal shows."""
    colour = rng.choice(["31", "1;33", "38;5;208"])
    lines = text.split("\n")
    return "\n".join(f"\x1b[{colour}m{line}\x1b[0m" if rng.random() < 0.5 else line for line in lines)


def prefixed(text: str, rng: random.Random) -> str:
    """All of it said by one Ray worker."""
    prefix = PREFIX.format(
        role=rng.choice(["TaskRunner", "WorkerDict", "AgentLoopWorker"]),
        pid=rng.randint(100, 99999),
        a=rng.randint(0, 255),
        b=rng.randint(0, 255),
        c=rng.randint(1, 254),
    )
    return "\n".join(prefix + line for line in text.split("\n"))


def stamped(text: str, rng: random.Random) -> str:
    """A scheduler's clock before each line."""
    day, hour = rng.randint(1, 28), rng.randint(0, 23)
    return "\n".join(
        f"2026-08-{day:02}T{hour:02}:{n // 60 % 60:02}:{n % 60:02}.{rng.randint(0, 999):03}Z {line}"
        for n, line in enumerate(text.split("\n"))
    )


def wrapped(text: str, rng: random.Random) -> str:
    """A terminal's width, in mid-word."""
    width = rng.choice([80, 100, 132])
    return "\n".join(
        line[at : at + width] for line in text.split("\n") for at in range(0, max(len(line), 1), width)
    )


def clipped(text: str, rng: random.Random) -> str:
    """A viewer that cuts long lines."""
    width = rng.choice([200, 240])
    return "\n".join(line[:width] for line in text.split("\n"))


def beheaded(text: str, rng: random.Random) -> str:
    """The last part of a long log: the head of everything is gone."""
    lines = text.split("\n")
    return "\n".join(lines[rng.randint(0, len(lines) // 3) :])


def interleaved(text: str, rng: random.Random) -> str:
    """Another worker talks all the time."""
    other = PREFIX.format(role="RolloutServer", pid=rng.randint(100, 9999), a=1, b=2, c=3)
    said = [
        "INFO: 10.0.0.1 - POST /generate 200 OK",
        "Training Progress:  12%|█▏        | 3/25 [00:31<03:50, 10.49s/it]",
        "WARNING:2026-08-01 12:00:00,000:this is only a warning",
        "  warnings.warn(",
    ]
    lines = []
    for line in text.split("\n"):
        lines.append(line)
        if rng.random() < 0.4:
            lines.append(other + rng.choice(said))
    return "\n".join(lines)


@dataclass(frozen=True)
class Spoiler:
    """One or several mutations with a seed, named for the test's id."""

    name: str
    steps: tuple[Spoil, ...]
    seed: int

    def __call__(self, text: str) -> str:
        rng = random.Random(self.seed)
        for step in self.steps:
            text = step(text, rng)
        return text


ALONE: tuple[Spoil, ...] = (
    paths,
    ranks,
    coloured,
    prefixed,
    stamped,
    wrapped,
    clipped,
    beheaded,
    interleaved,
)
TOGETHER: tuple[tuple[Spoil, ...], ...] = (
    (paths, ranks, interleaved, coloured),
    (prefixed, interleaved, stamped),
    (paths, prefixed, coloured, clipped),
    (ranks, beheaded, wrapped),
)
SPOILERS = [
    *(Spoiler(step.__name__, (step,), seed) for seed, step in enumerate(ALONE)),
    *(
        Spoiler("+".join(step.__name__ for step in steps), steps, seed)
        for seed, steps in enumerate(TOGETHER, start=100)
    ),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``spoil`` runs with each of the spoilers."""
    if "spoil" in metafunc.fixturenames:
        metafunc.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.name)
