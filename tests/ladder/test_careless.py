"""What careless users meet: odd paths, a reader that leaves, files that are gone, what killed climbs left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import OverrideError
from harness.evidence.abandoned import sweep_ray_folders
from harness.ladder import env_rung
from harness.ladder.options import ClimbOptions
from harness.profiles.hydra import word

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path", ["/home/jörg/x", "/it's/x", "/a(b)/x", "/a b/x", "/a=b/x", "/a[b]{c}~;!&#/x"]
)
def test_hydra_reads_back_any_path(path: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(word("data.train_files", path)).value() == path


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="\\"), min_size=1))
def test_hydra_reads_back_any_text(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(word("k", f"/{text}")).value() == f"/{text}"


def test_a_reader_that_leaves_does_not_end_the_run() -> None:
    code = "from harness.console import Output; o = Output(); [o.line(str(n)) for n in range(20000)]"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; import os; os._exit(7)"], stdout=subprocess.PIPE, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait() == 7


def test_a_distribution_whose_files_are_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
    (info / "RECORD").write_text("thing/__init__.py,,\nthing-1.0.dist-info/METADATA,,\n")
    monkeypatch.setattr(env_rung, "distributions", lambda: [PathDistribution(info)])
    (problem,) = env_rung._gone({"thing": "1.0"}, overlay=False)
    assert "thing/__init__.py" in problem.what
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "__init__.py").touch()
    assert not list(env_rung._gone({"thing": "1.0"}, overlay=False))


def test_a_reward_file_that_does_not_parse_names_its_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("x = 1\ndef compute_score(:\n")
    with pytest.raises(OverrideError, match=r"bad\.py:2: the reward file is not Python"):
        ClimbOptions(reward=f"{bad}:compute_score").reward_function()


def test_ray_folders_of_dead_climbs_go_and_those_of_the_living_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    dead, living, other = (tmp_path / f"vl-{n}-x" for n in (gone.pid, os.getpid(), "word"))
    for folder in (dead, living, other):
        (folder / "session").mkdir(parents=True)
    sweep_ray_folders()
    assert [folder.exists() for folder in (dead, living, other)] == [False, True, True]
