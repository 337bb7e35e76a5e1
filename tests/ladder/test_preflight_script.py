"""A training command at the end of a shell script: bash resolves it, and nothing that it calls happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import OverrideError
from harness.ladder.preflight.command_line import TRAINER, Asked, parse
from harness.ladder.preflight.script import Recorded, record


def run(tmp_path: Path, text: str, *arguments: str, **environ: str) -> Recorded:
    file = tmp_path / "train.sh"
    file.write_text(text)
    return record(file, arguments, home=tmp_path / "home", environ=environ)


def words(done: Recorded) -> tuple[str, ...]:
    (asked,) = done.asked
    return asked.words


SCRIPTS = [
    ("python3 -m verl.trainer.main_ppo a=1 \\\n  b=2", ("a=1", "b=2")),
    (
        "set -euxo pipefail\nN=4\npython -m verl.trainer.main_ppo n=$N m=$((N * 2)) $@",
        ("n=4", "m=8", "extra=1"),
    ),
    ('A=(a=1 "b=[1, 2]")\nA+=(c=3)\npython3 -m verl.trainer.main_ppo "${A[@]}"', ("a=1", "b=[1, 2]", "c=3")),
    ("X=${X:-5}; uv run --frozen python3 -m verl.trainer.main_ppo x=$X 2>&1 | tee log.txt", ("x=5",)),
    (
        "if python3 -c 'import torch_npu'; then D=npu; else D=gpu; fi\npython3 -m verl.trainer.main_ppo d=$D",
        ("d=gpu",),
    ),
    ("run() { python3 -m verl.trainer.main_ppo \"$@\"; }\nrun 'p=it'\"'\"'s'", ("p=it's",)),
    ("set -e\nulimit -n 99999999\npython3 -m verl.trainer.main_ppo a=1", ("a=1",)),
    ("cd /tmp && nohup python3 -u -m verl.trainer.main_ppo a=1", ("a=1",)),
    ("torchrun --nproc_per_node=8 -m verl.trainer.main_ppo a=1", ("a=1",)),
]


@pytest.mark.parametrize(("text", "expected"), SCRIPTS)
def test_the_words_are_those_that_bash_makes(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    done = run(tmp_path, text, "extra=1")
    assert words(done) == expected, done.said


def test_calls_at_the_same_time_stay_apart(tmp_path: Path) -> None:
    """A pipeline's parts write down how they were called at once, and a long call takes several writes."""
    long = f"a=[{','.join(map(str, range(20000)))}]"
    text = f"for n in $(seq 60); do python3 -m verl.trainer.main_ppo n=$n '{long}' & done\nwait\n"
    done = run(tmp_path, text)
    assert {asked.words for asked in done.asked} == {(f"n={n}", long) for n in range(1, 61)}


def test_a_variable_of_the_caller_wins_over_the_scripts_default(tmp_path: Path) -> None:
    done = run(tmp_path, "python3 -m verl.trainer.main_ppo n=${N:-1}", N="7")
    assert words(done) == ("n=7",)


def test_nothing_that_it_calls_happens(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    text = f"pip install x\nwget http://example.org\nrm -rf {precious}\nmv {precious} /tmp/gone\nray stop\n"
    done = run(tmp_path, text + "echo made > here.txt\npython3 -m verl.trainer.main_ppo a=1\n")
    assert precious.read_text() == "mine"
    assert [call.split()[0] for call in done.kept] == ["pip", "wget", "rm", "mv", "ray"]
    assert not (Path.cwd() / "here.txt").exists()
    assert words(done) == ("a=1",)


def test_a_script_without_a_network_and_with_an_end(tmp_path: Path) -> None:
    text = "exec 3<>/dev/tcp/1.1.1.1/80 && echo CONNECTED\npython3 -m verl.trainer.main_ppo a=1\n"
    done = run(tmp_path, text)
    assert "CONNECTED" not in done.said
    assert words(done) == ("a=1",)


def test_a_script_that_starts_nothing_or_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "echo hello; exit 3")
    assert (done.asked, done.exit_code) == ((), 3)
    assert "hello" in done.said
    with pytest.raises(OverrideError, match="no such script"):
        record(tmp_path / "gone.sh")


def asked(*argv: str) -> Asked:
    return parse(argv, environ={}, folder=Path())


def test_hydras_own_options_are_told_from_words() -> None:
    found = asked("python", "-m", TRAINER, "--config-path", "/c", "-cn=x", "a=1", "--lr", "2=3", "+b=2", "~c")
    assert (found.config_path, found.config_name, found.unknown) == ("/c", "x", ("--lr",))
    assert found.words == ("a=1", "2=3", "+b=2", "~c")
    assert found.trains


@pytest.mark.parametrize(
    ("argv", "module"),
    [
        (("python3", "verl/trainer/main_ppo.py", "a=1"), TRAINER),
        (("python3", "-u", "/x/verl/verl/trainer/main_ppo.py"), TRAINER),
        (("python3", "mine.py"), "mine.py"),
        (("env", "A=1", "python3", "-m", "verl.trainer.sft_trainer"), "verl.trainer.sft_trainer"),
    ],
)
def test_the_module_that_runs(argv: tuple[str, ...], module: str) -> None:
    assert asked(*argv).module == module


def test_what_is_no_command() -> None:
    with pytest.raises(OverrideError, match="no training command"):
        asked("echo", "hello")
