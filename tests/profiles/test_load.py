"""Loading: what is inherited, what is refused, and that every refusal says where and what to do."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import ProfileError, UnknownProfileError, VerlockError, WrongMachineError
from harness.profiles import load, names, root
from harness.profiles.load import load_file
from harness.profiles.model import Profile

CPU = (Path(__file__).parents[2] / "profiles" / "cpu.yaml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own, with the real profiles in it to be spoilt."""
    shutil.copytree(root() / "profiles", tmp_path / "profiles")
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    return tmp_path / "profiles"


def spoil(path: Path, old: str, new: str) -> int:
    """Replace ``old`` once; the line where it stands."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


def test_the_four_profiles() -> None:
    assert names() == ("a100", "cpu", "mac-m4-16g", "p40-sm61")
    assert [load(short).name for short in ("a100", "cpu", "mac", "p40")] == list(names())


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("cpu", "trainer.device", "cpu"),
        ("cpu", "+ray_kwargs.ray_init.num_gpus", 1),
        ("cpu", "+critic.fsdp.mixed_precision.param_dtype", "fp32"),
        ("mac", "+ray_kwargs.ray_init.object_store_memory", 2**30),
        ("p40", "+critic.fsdp.mixed_precision.param_dtype", "fp32"),
        ("p40", "actor_rollout_ref.actor.ppo_mini_batch_size", 1),
        ("p40", "actor_rollout_ref.rollout.tensor_model_parallel_size", 1),
        ("p40", "trainer.n_gpus_per_node", 1),
        ("p40", "actor_rollout_ref.actor.fsdp_config.use_torch_compile", False),
        ("p40", "actor_rollout_ref.rollout.name", "hf"),
        ("a100", "actor_rollout_ref.rollout.name", "vllm"),
        ("a100", "+critic.fsdp.mixed_precision.param_dtype", "bf16"),
    ],
)
def test_policy(name: str, key: str, value: object) -> None:
    assert load(name).overrides()[key] == value


@pytest.mark.parametrize("name", ["p40", "a100"])
def test_gpu_profiles_take_the_cpu_settings_only_in_a_rehearsal(name: str) -> None:
    profile = load(name)
    assert "+ray_kwargs.ray_init.num_gpus" not in profile.overrides()
    rehearsal = profile.overrides(rehearse=True)
    assert rehearsal["trainer.device"] == "cpu"
    assert rehearsal["actor_rollout_ref.rollout.name"] == "hf"


def test_the_p40_recipe_is_answered_whole() -> None:
    entries = load("p40").recipe
    assert len([entry for entry in entries if entry.parameter.isupper()]) == 3
    assert len([entry for entry in entries if not entry.parameter.isupper()]) == 6
    assert {entry.outcome for entry in entries} == {"kept", "mapped", "rejected"}


@pytest.mark.parametrize(
    ("name", "system", "machine", "file"),
    [
        ("cpu", "Linux", "x86_64", "requirements.lock"),
        ("cpu", "Linux", "aarch64", "requirements.lock"),
        ("mac", "Linux", "aarch64", "requirements.lock"),
        ("mac", "Darwin", "arm64", "requirements-macos.lock"),
    ],
)
def test_target(name: str, system: str, machine: str, file: str) -> None:
    assert load(name).target(system, machine).file == file


def test_target_of_a_foreign_machine() -> None:
    with pytest.raises(WrongMachineError, match="smoke-cpu"):
        load("p40").target("Linux", "aarch64")


@pytest.mark.parametrize(
    ("given_name", "near"), [("cpuu", "cpu"), ("p4", "p40"), ("mac-m4", "mac-m4-16g"), ("A100", "a100")]
)
def test_unknown_profile(given_name: str, near: str) -> None:
    with pytest.raises(UnknownProfileError, match=f"did you mean '{near}'"):
        load(given_name)


def test_typo_names_file_line_and_nearest_key(folder: Path) -> None:
    line = spoil(folder / "cpu.yaml", "memory_gib: 16", "memory_gb: 16")
    with pytest.raises(ProfileError) as caught:
        load("cpu")
    typo = next(problem for problem in caught.value.problems if "unknown key" in problem.what)
    assert typo.where == f"profiles/cpu.yaml:{line}:hardware.memory_gb"
    assert typo.todo == "did you mean 'memory_gib'?"


def test_two_errors_at_once(folder: Path) -> None:
    first = spoil(folder / "p40-sm61.yaml", 'compute_capability: "6.1"', "compute_capability: 6.1")
    second = spoil(folder / "p40-sm61.yaml", "outcome: rejected", "outcome: rejectd")
    with pytest.raises(ProfileError) as caught:
        load("p40")
    assert [problem.where for problem in caught.value.problems] == [
        f"profiles/p40-sm61.yaml:{first}:hardware.compute_capability",
        f"profiles/p40-sm61.yaml:{second}:recipe.2.outcome",
    ]
    assert [problem.todo for problem in caught.value.problems] == [
        'put it in quotes: "6.1"',
        "did you mean 'rejected'?",
    ]


def test_an_error_in_a_base_is_placed_there(folder: Path) -> None:
    line = spoil(folder / "_base.yaml", "ray: 2.59.0", "ray: latest")
    with pytest.raises(ProfileError, match=rf"profiles/_base\.yaml:{line}:software\.ray"):
        load("mac")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("cpu", "short: cpu", "short: cpu\nshort: cpu", "written twice"),
        ("cpu", "short: cpu", "short: [", "not YAML"),
        ("cpu", "extends: _base", "extends: base", "did you mean '_base'"),
        ("cpu", "extends: _base", "extends: cpu", "extends itself"),
        ("cpu", "extends: _base", "extends: mac-m4-16g", "extends itself"),
        ("cpu", "short: cpu", "short: cpu\nname: cpu", "named by its file"),
        ("cpu", "short: cpu", "short: cpu\n1: 2", "not a word"),
        ("cpu", "memory_gib: 16", "memory_gib: .inf", "not a finite number"),
        ("cpu", "memory_gib: 16", "memory_gib: 0b_", "cannot be read"),
        ("cpu", "device: cpu", "device: cuda", "has no cuda"),
        ("cpu", "native_dtypes: [float64, float32]", "native_dtypes: [float64]", "not native"),
        ("cpu", "accelerator: none", "accelerator: cuda", "needs compute_capability"),
        ("mac-m4-16g", 'macos_floor: "14.0"', "macos_floor:", "oldest macOS"),
        ("p40-sm61", "device: cuda", "device: cuda\n  rollout: vllm", "vllm is forbidden"),
        ("p40-sm61", "outcome: rejected", "outcome: kept", "a rejected entry has no keys"),
        ("p40-sm61", "trainer.total_epochs: { value: 2", "trainer.total_epochs: { value: 3", "not 2"),
        ("a100", "attention: sdpa", "attention: flash_attention_2", "forbidden by this profile itself"),
        ("_base", "trainer.nnodes:", "trainer..nnodes:", "pattern"),
    ],
)
def test_refused(folder: Path, name: str, old: str, new: str, message: str) -> None:
    spoil(folder / f"{name}.yaml", old, new)
    with pytest.raises(ProfileError, match=message) as caught:
        load("cpu" if name == "_base" else name)
    assert all(problem.where and problem.where.startswith("profiles/") for problem in caught.value.problems)


def test_a_new_value_needs_a_new_reason(folder: Path) -> None:
    spoil(
        folder / "cpu.yaml",
        "  device: cpu",
        "  device: cpu\n  overrides:\n    reward.num_workers: { value: 2 }",
    )
    with pytest.raises(ProfileError, match=r"reward\.num_workers\.reason: the key is missing"):
        load("cpu")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00bad", b"", b"just words", b"- a\n- b\n", b"a: &x [*x]", b"[" * 5000]
)
def test_no_file_ends_in_a_traceback(folder: Path, content: bytes) -> None:
    (folder / "odd.yaml").write_bytes(content)
    with pytest.raises(ProfileError):
        load("odd")
    assert load("cpu").name == "cpu"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)
FIELDS = st.sampled_from([*Profile.model_fields, "extends", "hardwear"])


def never_a_traceback(folder: Path, content: bytes) -> None:
    (folder / "random.yaml").write_bytes(content)
    with contextlib.suppress(VerlockError):
        load_file(folder / "random.yaml")


relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@relaxed
@given(
    content=st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_random_bytes(folder: Path, content: bytes) -> None:
    never_a_traceback(folder, content)


@relaxed
@given(document=st.dictionaries(FIELDS, VALUES, max_size=6))
def test_random_documents(folder: Path, document: dict[str, object]) -> None:
    never_a_traceback(folder, yaml.safe_dump({"extends": "_base", **document}).encode("utf-8", "replace"))


@relaxed
@given(data=st.data())
def test_a_profile_with_a_few_characters_changed(folder: Path, data: st.DataObject) -> None:
    text = CPU
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 8))
        text = (
            text[:start]
            + data.draw(st.text(alphabet=" \n:-[]{}&*'\"#abc123", max_size=6))
            + text[start + length :]
        )
    never_a_traceback(folder, text.encode())
