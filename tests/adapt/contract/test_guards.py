"""Guards at the doors: libraries, attention, autocast and Triton, each refused with the profile's reason."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")

import torch

from harness.adapt.contract import guards, triton, violation
from harness.adapt.contract.terms import Mode, Terms
from harness.errors import ContractError
from harness.profiles import load


def terms(mode: Mode = "enforce", profile: str = "p40") -> Terms:
    return Terms.of(load(profile), mode)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("VERLOCK_EVENTS", raising=False)
    violation.forget()
    yield
    violation.forget()


# --- libraries --------------------------------------------------------------------------------------------

LIBRARIES = [
    ("flash_attn", "flash-attn", "sm_80"),
    ("vllm", "vllm", "sm_70"),
    ("sglang", "sglang*", "vllm"),
    ("sglang_router", "sglang*", "vllm"),
    ("liger_kernel", "liger-kernel", "7.0"),
]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Somebody installed what the lock does not hold."""
    for name, _, _ in LIBRARIES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("planted = True\n")
        (tmp_path / name / "ops.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [n for n in sys.modules if n.split(".")[0] in {name for name, _, _ in LIBRARIES}]:
        del sys.modules[name]


def guard(monkeypatch: pytest.MonkeyPatch, given: Terms) -> None:
    monkeypatch.setattr(sys, "meta_path", [guards.ImportGuard(given), *sys.meta_path])


@pytest.mark.parametrize(("module", "name", "reason"), LIBRARIES)
def test_importing_a_forbidden_library_is_refused(
    packages: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, reason: str
) -> None:
    guard(monkeypatch, terms())
    with pytest.raises(ContractError) as caught:
        importlib.import_module(f"{module}.ops")
    (problem,) = caught.value.problems
    assert f"import {module}" in problem.what
    assert reason in str(problem.why)
    assert problem.where is not None
    assert problem.where.startswith(__file__)
    assert module not in sys.modules


def test_an_except_importerror_does_not_swallow_it(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl tries flash-attn's cross-entropy in this way (verl/utils/torch_functional.py)."""
    guard(monkeypatch, terms())
    with pytest.raises(ContractError, match="sm_80"), contextlib.suppress(ImportError):
        import flash_attn  # type: ignore[import-not-found]  # noqa: F401


def test_looking_whether_it_is_there_is_allowed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asks so for a dozen packages at its import."""
    guard(monkeypatch, terms())
    assert importlib.util.find_spec("flash_attn") is not None


def test_what_is_not_installed_stays_an_importerror(monkeypatch: pytest.MonkeyPatch) -> None:
    guard(monkeypatch, terms())
    assert importlib.util.find_spec("flash_attn") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn")


def test_recording_lets_it_in(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard(monkeypatch, terms("record"))
    assert importlib.import_module("flash_attn").planted


def test_what_another_profile_allows_is_imported(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard(monkeypatch, terms(profile="a100"))
    assert importlib.import_module("vllm").planted


# --- attention and autocast -------------------------------------------------------------------------------


def test_an_attention_is_refused_when_a_layer_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    modeling = pytest.importorskip("transformers.modeling_utils")
    monkeypatch.setattr(
        modeling.AttentionInterface, "get_interface", modeling.AttentionInterface.get_interface
    )
    guards.guard_attention(modeling, terms())
    asked = modeling.ALL_ATTENTION_FUNCTIONS.get_interface
    assert asked("sdpa", None) is not None
    for name, needed in (("flash_attention_2", "sm_80"), ("flex_attention", "7.0")):
        with pytest.raises(ContractError, match=needed):
            asked(name, None)


def test_autocast_to_a_forbidden_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.amp.autocast_mode as module

    monkeypatch.setattr(module.autocast, "__enter__", module.autocast.__enter__)
    guards.guard_autocast(module, terms())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        pass
    with (
        pytest.raises(ContractError, match="autocast to bfloat16"),
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        pass
    assert not torch.is_autocast_enabled("cpu")


# --- Triton: a stand-in here, the real one in tests/acceptance ----------------------------------------------


def stand_in(shared: int) -> ModuleType:
    """The parts of triton 3.3.1 that the guards hold on to."""
    module = ModuleType("triton")

    class JITFunction:
        fn = SimpleNamespace(__name__="double")

        def run(self, *args: Any, grid: Any, warmup: bool) -> str:
            return "ran"

    class CompiledKernel:
        def __init__(self) -> None:
            self.metadata = SimpleNamespace(name="double", shared=shared)

        def _init_handles(self) -> str:
            return "loaded"

    module.JITFunction, module.CompiledKernel = JITFunction, CompiledKernel  # type: ignore[attr-defined]
    return module


def test_a_launch_is_refused_before_triton_does_anything() -> None:
    module = stand_in(0)
    triton.guard_launch(module, terms())
    with pytest.raises(ContractError) as caught:
        module.JITFunction().run(grid=(1,), warmup=False)
    assert "launch of the Triton kernel double" in str(caught.value)
    assert "sm_70" in str(caught.value)
    assert module.JITFunction().run(grid=(1,), warmup=True) == "ran"


def test_a_compiled_kernel_is_not_put_on_the_card() -> None:
    """torch.compile's kernels do not pass by the launch above."""
    module = stand_in(0)
    triton.guard_load(module, terms())
    with pytest.raises(ContractError, match="sm_70"):
        module.CompiledKernel()._init_handles()


def test_more_shared_memory_than_a_block_has() -> None:
    module = stand_in(81920)
    triton.guard_load(module, terms())
    with pytest.raises(ContractError) as caught:
        module.CompiledKernel()
    assert "81920" in str(caught.value)
    assert "49152" in str(caught.value)


def test_a_card_that_can_is_left_alone() -> None:
    module = stand_in(81920)
    triton.guard_load(module, terms(profile="a100"))
    triton.guard_launch(module, terms(profile="a100"))
    assert module.CompiledKernel()._init_handles() == "loaded"
    assert module.JITFunction().run(grid=(1,), warmup=False) == "ran"
