"""What a watch refuses, and what it hands on to its climbs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness import cli
from harness.commands import watch
from harness.warm import loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watch is for Linux")


def test_all_mistakes_come_at_once_and_before_an_environment_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "_environment", lambda *_: pytest.fail("an environment was asked for"))
    gone = tmp_path / "gone.parquet"
    words = ["watch", "--json", "--rung", "nope", "--to", "top", "--data", str(gone), "--algorithm", "xx"]
    words += [
        "--trainer",
        "v7",
        "--without-patch",
        "zz",
        "--verl-source",
        str(tmp_path),
        "--reward",
        "f.py",
        "word",
    ]
    monkeypatch.setattr(sys, "argv", ["verlock", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = [problem["what"] for problem in json.loads(capfd.readouterr().out)["error"]["problems"]]
    assert ended.value.code == 21
    assert told == [
        "--rung nope is unknown",
        "--to top is unknown",
        "--rung and --to together",
        "--reward f.py is no reward",
        "--algorithm xx is unknown",
        "--trainer v7 is unknown",
        "--without-patch zz names no patch",
        "word is no Hydra override",
        f"--verl-source {tmp_path} is no checkout of verl",
        f"no such file: {gone}",
    ]


def test_ctrl_c_adds_no_document_to_the_verdicts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def f(**_): return 0.0\n")

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "_environment", lambda *_: (Path(sys.executable), {}))
    monkeypatch.setattr(loop, "Loop", interrupted)
    monkeypatch.setattr(sys, "argv", ["verlock", "watch", "--json", "--reward", f"{reward}:f"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capfd.readouterr().out) == (130, "")


@pytest.mark.parametrize(("given", "handed"), [([], "--steps=2"), (["--steps", "4"], "--steps=4")])
def test_two_steps_unless_more_are_asked_for(
    given: list[str], handed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The climb's own default is another, so it must be said each time."""
    reward = tmp_path / "reward.py"
    reward.write_text("def f(**_): return 0.0\n")
    seen: list[Any] = []

    def made(asked: Any, *_: object) -> Any:
        seen.append(asked)
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "_environment", lambda *_: (Path(sys.executable), {}))
    monkeypatch.setattr(loop, "Loop", made)
    CliRunner().invoke(cli.app, ["watch", "--reward", f"{reward}:f", *given])
    assert handed in seen[0].words
    assert len([word for word in seen[0].words if word.startswith("--steps")]) == 1
