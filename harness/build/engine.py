"""Container engines on this machine: which there are, what each can do, and what to do where it cannot.

Several clients may be installed, and the first on PATH need not be the one that can build: a Docker client
since 23 builds through the buildx plug-in only, an older one does without. So all of them are asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.errors import EngineError, Problem

VARIABLE = "VERLOCK_ENGINE"
"""Names the client to use: a path, or a name on PATH."""
Kind = Literal["docker", "podman"]
_ASK_SECONDS = 20
_PODMAN = "a climb in an image goes through the Docker SDK: for `--image`, start Docker"


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What one client said when it was asked; facts without judgement."""

    program: str
    kind: Kind
    client: str | None
    server: str | None
    """Version of the daemon; none where it does not answer. Podman has none and is its own."""
    silence: str | None = None
    """What the client said in place of the server's version."""
    buildx: bool = False
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A client, judged."""

    program: str
    kind: Kind
    client: str | None
    server: str | None
    usable: bool
    missing: str | None
    remedy: str | None
    note: str | None
    """What it cannot do beside building, and what to do then."""
    network: Literal["default", "host"]
    """``host`` where the daemon has no bridge: builds then use the machine's own network."""

    def command(self, *arguments: str | Path) -> list[str]:
        """A command line of this engine."""
        return [self.program, *map(str, arguments)]

    def environment(self) -> dict[str, str]:
        """This process's, with BuildKit, and without the statement of provenance, which holds times."""
        return {**os.environ, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}

    def title(self) -> str:
        """For people, as in ``docker 20.10.24 (/usr/bin/docker), daemon 20.10.24``."""
        daemon = f", daemon {self.server}" if self.kind == "docker" and self.server else ""
        return f"{self.kind} {self.client or '?'} ({self.program}){daemon}"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def judge(answers: Answers) -> Engine:
    """Whether the client can build, and what it lacks. Pure."""
    missing, remedy = _lacks(answers)
    bare = answers.kind == "docker" and answers.server is not None and "bridge" not in answers.networks
    return Engine(
        program=answers.program,
        kind=answers.kind,
        client=answers.client,
        server=answers.server,
        usable=missing is None,
        missing=missing,
        remedy=remedy,
        note=_PODMAN if answers.kind == "podman" and missing is None else None,
        network="host" if bare else "default",
    )


def find() -> list[Engine]:
    """All engines of this machine, the usable ones first; a client named by VERLOCK_ENGINE stands alone."""
    engines = [judge(ask(program, kind)) for program, kind in candidates(os.environ)]
    return sorted(engines, key=lambda engine: not engine.usable)


def choose(engines: Sequence[Engine], *, kind: Kind | None = None) -> Engine:
    """The first usable engine, of that kind where one is named.

    Who names a daemon in DOCKER_HOST means that one: podman does not step in where it does not answer.

    Raises:
        EngineError: none is, with what each of them lacks.
    """
    kind = kind or ("docker" if os.environ.get("DOCKER_HOST") and not os.environ.get(VARIABLE) else None)
    engines = [engine for engine in engines if kind in {None, engine.kind}]
    for engine in engines:
        if engine.usable:
            return engine
    if not engines:
        raise EngineError(
            f"no {kind or 'container engine'} was found",
            where=os.environ.get(VARIABLE) or "PATH",
            why="an image is built by docker or podman, and run by docker",
            todo="install it (Debian: apt-get install docker.io; in CI: .ci/engine)",
        )
    raise EngineError(
        *(
            Problem(what="cannot build", where=engine.title(), why=engine.missing, todo=engine.remedy)
            for engine in engines
        )
    )


def candidates(environ: Mapping[str, str]) -> list[tuple[str, Kind]]:
    """Every docker and podman on PATH, each once; or the one that is asked for."""
    wanted = environ.get(VARIABLE)
    if wanted:
        found = shutil.which(wanted, path=environ.get("PATH"))
        return [(found, "podman" if "podman" in Path(found).name else "docker")] if found else []
    there: dict[Path, tuple[str, Kind]] = {}
    kinds: tuple[Kind, ...] = ("docker", "podman")
    for kind in kinds:
        for folder in [*environ.get("PATH", "").split(os.pathsep), "/usr/bin"]:
            if found := shutil.which(kind, path=folder):
                there.setdefault(Path(found).resolve(), (found, kind))
    return list(there.values())


def ask(program: str, kind: Kind) -> Answers:
    """Ask a client about itself and its daemon."""
    code, said, error = _say(program, "version", "--format", "json" if kind == "podman" else "{{json .}}")
    try:
        document = json.loads(said)
    except ValueError:
        document = {}
    client = (document.get("Client") or {}).get("Version")
    server = (document.get("Server") or {}).get("Version") or (client if kind == "podman" else None)
    reached = code == 0 and server is not None
    networks = _say(program, "network", "ls", "--format", "{{.Name}}")[1] if reached else ""
    return Answers(
        program=program,
        kind=kind,
        client=client,
        server=server,
        silence=None if reached else (error.strip().splitlines() or ["no answer"])[-1],
        buildx=kind == "docker" and _say(program, "buildx", "version")[0] == 0,
        networks=tuple(networks.split()),
    )


def _say(program: str, *arguments: str) -> tuple[int, str, str]:
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, timeout=_ASK_SECONDS
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {_ASK_SECONDS} s"
    except OSError as error:
        return 126, "", str(error)
    return done.returncode, done.stdout, done.stderr


def _lacks(answers: Answers) -> tuple[str | None, str | None]:
    """The first thing that is missing, and its remedy."""
    if answers.client is None:
        return "it does not run" + (f": {answers.silence}" if answers.silence else ""), "install it again"
    if answers.server is None:
        return _silent(answers.silence or "no answer")
    if answers.kind == "podman":
        return None, None
    if _major(answers.client) >= 23 and not answers.buildx:
        other = f"install buildx (Debian: docker-buildx), or name an older client: {VARIABLE}=/usr/bin/docker"
        return "a Docker client since 23 builds with the buildx plug-in, and that is not installed", other
    if (_major(answers.server), _minor(answers.server)) < (20, 10):
        return "its daemon is older than 20.10, which brought RUN --mount", "install a newer engine"
    return None, None


def _silent(said: str) -> tuple[str, str]:
    """Why a daemon does not answer, and what to do."""
    if "permission denied" in said.lower():
        return (
            "its daemon may not be spoken to by this user",
            "sudo usermod -aG docker $USER, then log in again",
        )
    return (
        f"its daemon does not answer: {said}",
        "start it (systemctl start docker, or Docker Desktop; in CI: .ci/engine), or set DOCKER_HOST",
    )


def _major(version: str) -> int:
    return _number(version, 0)


def _minor(version: str) -> int:
    return _number(version, 1)


def _number(version: str, place: int) -> int:
    parts = version.split(".")
    digits = parts[place] if place < len(parts) else ""
    return int(digits) if digits.isdigit() else 0
