"""What public runners and .ci/run do is what the README tells a user to type: nox sessions, nothing else.

That the workflows fit GitHub's schema and are clean under zizmor is checked by the lint session.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
ACTIONS = {"actions/checkout", "actions/setup-python", "actions/upload-artifact"}
PINNED = re.compile(r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
SESSION = r"\.venv/bin/nox -s [\w-]+( -- [^&|;\n]+)?"
SETUP = r"python3 -m venv \.venv && \.venv/bin/pip install -q nox && "
CI_RUN = ROOT / ".ci" / "run"


def readme_command(heading: str) -> str:
    """The one command in the first fenced block under a heading of the README."""
    readme = (ROOT / "README.md").read_text()
    section = re.search(rf"^#+ {heading}$(.*?)(?=^#+ |\Z)", readme, re.MULTILINE | re.DOTALL)
    assert section, f"README.md has no heading {heading!r}"
    block = re.search(r"^```\w*\n(.*?)\n```$", section[1], re.MULTILINE | re.DOTALL)
    assert block, f"README.md has no fenced block under {heading!r}"
    (command,) = block[1].splitlines()
    return command.strip().removeprefix("$ ")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            yield f"{path.name}:{name}", job


@pytest.mark.parametrize(("name", "job"), [pytest.param(*job, id=job[0]) for job in jobs()])
def test_each_step_is_a_nox_session(name: str, job: dict[str, Any]) -> None:
    for step in job["steps"]:
        if "uses" in step:
            assert step["uses"].split("@")[0] in ACTIONS
        else:
            assert re.fullmatch(f"(?:{SETUP})?{SESSION}", step["run"]), step["run"]


@pytest.mark.parametrize(("name", "job"), [pytest.param(*job, id=job[0]) for job in jobs()])
def test_each_job_may_only_read_and_ends(name: str, job: dict[str, Any]) -> None:
    assert job["permissions"] == {"contents": "read"}
    assert job["timeout-minutes"] <= 60
    checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False]


def test_actions_are_pinned_by_commit_and_say_their_version() -> None:
    uses = [
        line.strip(" -") for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line
    ]
    assert uses
    assert [line for line in uses if not PINNED.fullmatch(line)] == []


def test_all_three_kinds_of_machine_are_used() -> None:
    runners: set[str] = set()
    for _, job in jobs():
        matrix = job.get("strategy", {}).get("matrix", {}).get("runner")
        runners |= set(matrix or [job["runs-on"]])
    assert runners == {"ubuntu-24.04", "ubuntu-24.04-arm", "macos-15"}


def test_ci_run_is_a_program() -> None:
    assert os.access(CI_RUN, os.X_OK)
    subprocess.run(["bash", "-n", str(CI_RUN)], check=True)


@pytest.mark.parametrize(("heading", "session"), [("Run it", "smoke-cpu"), ("Test it", "tests")])
def test_ci_runs_the_commands_of_the_readme_word_for_word(heading: str, session: str) -> None:
    command = readme_command(heading)
    assert command.endswith(f".venv/bin/nox -s {session}")
    assert f"  {command}\n" in CI_RUN.read_text()
    assert any(command == step.get("run") for _, job in jobs() for step in job["steps"])


def test_ci_run_ends_with_the_tests() -> None:
    """CI reads pytest's summary at the end of the output."""
    assert CI_RUN.read_text().splitlines()[-1] == "test_it"
