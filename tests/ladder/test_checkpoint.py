"""A checkpoint is read before it is resumed from, and a resumed run is compared to the last bit."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ModelError, RungFailedError
from harness.evidence import events
from harness.evidence.metrics import Step
from harness.ladder import checkpoint
from harness.ladder.resumed import problems

# A weight's bytes, found again in the file because torch stores them as they are.
MARK = bytes(range(1, 200))


def archive(marked: bytes = MARK) -> bytes:
    """A file as ``torch.save`` writes it: a zip with stored entries."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as made:
        made.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        made.writestr("archive/data/0", marked)
    return sink.getvalue()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The checkpoint of step 2 of one rank, with its tracker file."""
    folder = checkpoint.folder_of(tmp_path, 2)
    for role in ("actor", "critic"):
        for path in checkpoint.shards(folder, role, 1):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive())
    (folder / "data.pt").write_bytes(archive())
    (tmp_path / checkpoint.TRACKER).write_text("2")
    return tmp_path


def taken(saved: Path, mode: str = "auto", parts: tuple[str, ...] = ("model", "optimizer", "extra")) -> None:
    trainer = {
        "resume_mode": mode,
        "resume_from_path": str(saved / "global_step_2"),
        "default_local_dir": str(saved),
        "nnodes": 1,
        "n_gpus_per_node": 1,
    }
    contents = {"actor": {"checkpoint": {"load_contents": list(parts)}}}
    config = pytest.importorskip("omegaconf").OmegaConf.create(
        {"trainer": trainer, "actor_rollout_ref": contents}
    )
    checkpoint.check_resume(config, ("actor", "critic"))


def flip(path: Path) -> None:
    """One bit of a weight. torch.load takes it without a word."""
    content = path.read_bytes()
    assert content.count(MARK) == 1
    path.write_bytes(content.replace(MARK, MARK[:-1] + bytes([MARK[-1] ^ 1])))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros, as after a power failure": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("name", ["actor/model", "actor/optim", "actor/extra_state", "critic/model", "data"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(saved: Path, name: str, damage: str) -> None:
    taken(saved)
    (path,) = (saved / "global_step_2").glob(f"{name}*.pt")
    DAMAGES[damage](path)
    with pytest.raises(ModelError, match=str(path)) as caught:
        taken(saved)
    assert len(caught.value.problems) == 1
    assert caught.value.failure_class == "data"
    taken(saved, "disable")
    if "model" in name:
        taken(saved, parts=("optimizer", "extra"))


def test_the_step_that_was_asked_for_is_looked_at(saved: Path) -> None:
    (saved / checkpoint.TRACKER).unlink()
    taken(saved)
    taken(saved, "resume_path")
    (saved / "global_step_2" / "data.pt").unlink()
    taken(saved)  # without a tracker file verl begins anew
    with pytest.raises(ModelError, match=r"data\.pt"):
        taken(saved, "resume_path")


def test_torch_loads_a_flipped_bit_without_a_word(tmp_path: Path) -> None:
    """Why the checksums are compared here: should torch do so one day, this test says so."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.pt"
    weight = torch.frombuffer(bytearray(MARK), dtype=torch.uint8)
    torch.save({"weight": weight}, path)
    assert list(checkpoint.damage(path)) == []
    flip(path)
    assert not torch.equal(torch.load(path)["weight"], weight)
    assert len(list(checkpoint.damage(path))) == 1


def test_which_step_is_resumed_from(saved: Path, tmp_path: Path) -> None:
    assert checkpoint.latest(saved) == saved / "global_step_2"
    (saved / checkpoint.TRACKER).write_text("")
    with pytest.raises(ModelError, match="tracker"):
        checkpoint.latest(saved)
    (saved / checkpoint.TRACKER).unlink()
    assert checkpoint.latest(saved) is None


def steps(first: int, last: int, **changed: float) -> list[Step]:
    return [
        Step(step=n, values={"actor/loss": n / 3, "timing_s/step": n * 2.0, **changed})
        for n in range(first, last + 1)
    ]


def shifted(found: list[Step], by: float) -> list[Step]:
    """Times differ from run to run."""
    return [Step(step=s.step, values={**s.values, "timing_s/step": by}) for s in found]


DIGESTS = ["w0", "w1", "w2", "w3", "w4"]
RESUMED = [
    pytest.param(shifted(steps(3, 4), 9.0), DIGESTS[2:], [], id="the same"),
    pytest.param(steps(1, 4), DIGESTS, ["logged the steps [1, 2, 3, 4], not [3, 4]"], id="from the start"),
    pytest.param([], [], ["logged the steps []"], id="nothing"),
    pytest.param(
        steps(3, 4, x=1.0), DIGESTS[2:], ["step 3: x is 1.0 in the resumed run"], id="another metric"
    ),
    pytest.param(
        [steps(3, 3)[0], Step(step=4, values={"actor/loss": 4 / 3 + 2**-52, "timing_s/step": 8.0})],
        DIGESTS[2:],
        ["step 4: actor/loss is"],
        id="one bit",
    ),
    pytest.param(steps(3, 4), ["w0", "w3", "w4"], ["other weights after step 2"], id="weights not loaded"),
    pytest.param(
        steps(3, 4), ["w2", "w3", "x"], ["other weights after step 4"], id="weights after the last step"
    ),
    pytest.param(steps(3, 4), ["w2", "w3"], ["other weights 2 times, not 3"], id="an update too few"),
]


@pytest.mark.parametrize(("found", "digests", "said"), RESUMED)
def test_a_resumed_run_against_the_whole_one(found: list[Step], digests: list[str], said: list[str]) -> None:
    told = [p.what for p in problems(steps(1, 4), found, DIGESTS, digests, after=2)]
    assert len(told) == len(said), told
    assert all(text in line for text, line in zip(said, told, strict=True)), told


def test_a_kill_that_came_late_resumes_from_the_step_that_was_meant(saved: Path) -> None:
    """On a busy machine the next step is saved before the processes are gone; verl would take that one."""
    room = pytest.importorskip("harness.ladder.checkpoint_rung", exc_type=ImportError)
    assert room._saved(saved, 2) == (saved / "global_step_2", {"trainer.resume_mode": "auto"})
    (saved / checkpoint.TRACKER).write_text("3")
    wanted, settings = room._saved(saved, 2)
    assert settings == {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(wanted)}
    for after in (1, 3):
        with pytest.raises(RungFailedError, match=f"not that of step {after}"):
            room._saved(saved, after)


def test_the_rung(climb: Callable[..., Any]) -> None:
    """verl's own save and resume, with a SIGKILL to all processes in between."""
    pytest.importorskip("verl", reason="verl comes with the lock")
    done = climb("--from", "checkpoint", "--to", "checkpoint", "--steps", "2", seconds=900)
    assert done.exit_code == 0, done.stdout
    (rung,) = done.run.rungs
    assert "step 2 bit-identical to the uninterrupted run" in rung.verified
    assert rung.details["steps"] == [2]
    seen = events.read(done.folder / "events.jsonl")
    (killed,) = [event for event in seen if event["kind"] == "trainer_killed"]
    assert killed["step"] == 1
    assert killed["processes"] >= 5
