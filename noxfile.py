"""Sessions only: each installs the host side of verlock into nox's own environment and calls it.

torch, verl and ray are never installed here. ``verlock`` makes the environment of a profile from its lock
and runs inside it; what stands after ``--`` goes to the command that the session runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "venv"  # uv comes with `.[host]`; a bare machine need not have it
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True
nox.options.sessions = ["lint", "tests"]


def verlock(session: nox.Session, *arguments: str) -> None:
    """Run one verlock command on the host side; its own message and exit code end the session."""
    session.install("-e", ".[host]")
    # A folder `harness` on the user's PYTHONPATH would be taken for this one.
    session.run("verlock", *arguments, env={"PYTHONPATH": None})


def python_of_lock(session: nox.Session) -> str:
    """Make the environment of the cpu lock and the dev group; return its Python."""
    session.install("-e", ".[host]")
    # Installing takes minutes: the progress goes to the terminal through stderr, the document is kept.
    answer = session.run("verlock", "env", "cpu", "--dev", "--json", silent=True, stderr=sys.stderr)
    if not isinstance(answer, str):  # --install-only: nothing was run
        session.skip("nothing to run")
    return str(json.loads(answer)["python"])


@nox.session(name="smoke-cpu")
def smoke_cpu(session: nox.Session) -> None:
    """Climb to verl's real PPO trainer on this machine's CPU, from the cpu lock."""
    verlock(session, "climb", "--profile", "cpu", *session.posargs)


@nox.session(name="smoke-mac")
def smoke_mac(session: nox.Session) -> None:
    """Climb natively on an Apple M4, from the Mac lock; refused on any other machine."""
    verlock(session, "climb", "--profile", "mac-m4-16g", *session.posargs)


@nox.session(name="smoke-p40")
def smoke_p40(session: nox.Session) -> None:
    """Climb on a Tesla P40, in its image; ``-- --rehearse`` does it on any CPU, under its contract."""
    verlock(session, "climb", "--profile", "p40-sm61", *session.posargs)


@nox.session(name="smoke-a100")
def smoke_a100(session: nox.Session) -> None:
    """Climb on an A100, in its image; ``-- --rehearse`` does it on any CPU, under its contract."""
    verlock(session, "climb", "--profile", "a100", *session.posargs)


def image_session(command: str, short: str, about: str) -> None:
    """Make the session of one command for one profile's image."""

    def run(session: nox.Session) -> None:
        verlock(session, command, short, *session.posargs)

    run.__doc__ = about
    nox.session(name=f"{command}-{short}")(run)


for short_name in ("cpu", "mac", "p40", "a100"):
    image_session("build", short_name, "Build the profile's image and its archive, dist/PROFILE/image.tar.")
    image_session("prove", short_name, "Build the image twice from nothing, and list what differs.")
    image_session("handoff", short_name, "Bundle the proven image for a cluster: dist/PROFILE/handoff.")


@nox.session
def render(session: nox.Session) -> None:
    """Write docker/rendered/ from the profiles; ``-- --check`` only compares."""
    verlock(session, "render", *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Resolve the profiles' locks with uv; ``-- --check`` only compares."""
    verlock(session, "lock", *session.posargs)


@nox.session
def update(session: nox.Session) -> None:
    """Propose newer pins: ``-- PROFILE [--write NAME]``."""
    verlock(session, "update", *(session.posargs or ["cpu"]))


@nox.session
def compat(session: nox.Session) -> None:
    """Climb with each release of verl that has a lock; the matrix goes to docs/compat.json and compat.md."""
    verlock(session, "compat", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that every change must pass (tier A) with the packages of the cpu lock."""
    session.run(python_of_lock(session), "-m", "pytest", *session.posargs, external=True)


@nox.session(name="tests-container")
def tests_container(session: nox.Session) -> None:
    """Run the tests that need a container engine: images are built, proven and trained in."""
    session.install("-e", ".[host,dev]")
    session.run("pytest", "tests/container", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure side by side into docs/bench.json and bench.md: ``-- [--only CASE] [--compare OLD.json]``."""
    session.run(python_of_lock(session), "tests/bench", *session.posargs, external=True)


@nox.session
def acceptance(session: nox.Session) -> None:
    """Run an issue's long proofs (tier B): ``-- ISSUE [--fresh] [pytest arguments]``."""
    if not session.posargs or not session.posargs[0].isdigit():
        session.error("which issue? nox -s acceptance -- ISSUE [--fresh] [pytest arguments]")
    issue, *rest = session.posargs
    pytest = [python_of_lock(session), "-m", "pytest", "tests/acceptance", "-m", "acceptance"]
    session.run(*pytest, f"--issue={issue}", *rest, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, who imports whom, the workflows, and that generated files are current."""
    session.install("-e", ".[host,dev]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    for platform in ("linux", "darwin"):
        cache = f"--cache-dir=.mypy_cache/{platform}"
        session.run("mypy", "--strict", f"--platform={platform}", cache, "harness", "noxfile.py")
    session.run("lint-imports", "--no-logo")
    schema = "--builtin-schema=vendor.github-workflows"
    session.run("check-jsonschema", schema, ".github/workflows/ci.yml")
    session.run("hadolint", *sorted(map(str, Path("docker", "rendered").glob("*/Dockerfile"))))
    session.run("zizmor", "--offline", "--persona=pedantic", ".github")
    for command in ("schema", "claims", "render", "lock"):
        session.run("verlock", command, "--check")
    for profile in sorted(Path("profiles").glob("[!_]*.yaml")):
        session.run("verlock", "plan", profile.stem, "--check")
