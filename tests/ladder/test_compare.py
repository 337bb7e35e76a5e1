"""Two devices, rung by rung: cpu against cpu is bit-equal, and a planted deviation is found and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.errors import OverrideError, RungFailedError, WrongMachineError
from harness.ladder import compare
from harness.ladder.compare import Pair, forward, pair, rollout, usable
from harness.ladder.context import Verified
from harness.ladder.divergence import GRADIENT, LOG_PROB, limits
from harness.ladder.inputs import prepare
from harness.ladder.options import ClimbOptions
from harness.profiles import load

Rung = Callable[..., Verified]
RUNGS: dict[str, Rung] = {"forward": forward, "rollout": rollout}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Any:
    options = ClimbOptions()
    inputs = prepare(options, tmp_path_factory.mktemp("inputs"))
    return SimpleNamespace(options=options, inputs=inputs, profile=load("cpu"))


def planted(change: Callable[[Any], Any]) -> Pair:
    """Both sides on the CPU, the second one's model changed."""
    return Pair(
        first="cpu",
        second="cpu",
        prepare=lambda side, model: change(model) if side == "second" else None,
    )


def nudge(model: Any) -> None:
    """One weight in a layer, by a thousandth."""
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] += 1e-3


def deaf(model: Any) -> None:
    """A layer whose attention gives nothing."""
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()


def eager(model: Any) -> None:
    """The same mathematics in another order."""
    model.set_attn_implementation("eager")


def half(model: Any) -> None:
    model.to(torch.bfloat16)


@pytest.mark.parametrize("name", RUNGS)
def test_one_device_is_equal_to_itself(name: str, context: Any) -> None:
    found = RUNGS[name](context, devices=Pair(first="cpu", second="cpu"))
    if name == "forward":
        assert found.details["divergence"]["log-probability"]["largest"] == 0.0
        assert found.details["divergence"]["gradient"]["largest"] == 0.0
    else:
        assert found.details["equal"] == found.details["tokens"] > 0
    assert found.line.startswith("cpu and cpu: ")


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("change", [nudge, deaf, half], ids=lambda change: change.__name__)
def test_a_planted_deviation_is_found(name: str, change: Callable[[Any], Any], context: Any) -> None:
    with pytest.raises(RungFailedError) as caught:
        RUNGS[name](context, devices=planted(change))
    assert "differs by" in str(caught.value)
    assert "between cpu and cpu" in str(caught.value)


def test_the_gradient_names_the_parameter_that_is_off(context: Any) -> None:
    with pytest.raises(RungFailedError, match=r"gradient differs .* most at model\.layers\.0"):
        forward(context, devices=planted(deaf))


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize(
    ("change", "passes"), [(eager, True), (half, False), (deaf, False)], ids=["rounding", "bf16", "deaf"]
)
def test_the_limits_for_two_kinds_lie_between_rounding_and_another_dtype(
    name: str, change: Callable[[Any], Any], passes: bool, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limits that hold between mps and cpu, on what a CPU can show of both."""
    monkeypatch.setattr(compare, "limits", lambda *_: limits("mps", "cpu"))
    devices = planted(change)
    if passes:
        RUNGS[name](context, devices=devices)
        return
    with pytest.raises(RungFailedError):
        RUNGS[name](context, devices=devices)


def test_rounding_is_far_below_the_limits_and_bf16_above(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "limits", lambda *_: {"log-probability": 1e9, "gradient": 1e9})

    def apart(change: Callable[[Any], Any]) -> dict[str, float]:
        found = forward(context, devices=planted(change)).details["divergence"]
        return {name: one["largest"] for name, one in found.items()}

    rounded, half_precision = apart(eager), apart(half)
    assert 0 < rounded["log-probability"] < LOG_PROB / 50
    assert half_precision["log-probability"] > LOG_PROB
    assert 0 < rounded["gradient"] < GRADIENT / 50
    assert half_precision["gradient"] > GRADIENT


@pytest.mark.parametrize(
    ("device", "other", "last", "told"),
    [
        ("mps", None, "rollout", "go together"),
        (None, "cpu", "rollout", "go together"),
        ("tpu", "cpu", "rollout", "--device tpu is no device"),
        ("mps", "cpu", "ppo", "cannot be compared"),
    ],
)
def test_what_cannot_be_compared_is_said(device: str, other: str, last: Any, told: str) -> None:
    with pytest.raises(OverrideError, match=told):
        pair(device, other, ClimbOptions(last=last))


def test_nothing_is_compared_unless_asked() -> None:
    assert pair(None, None, ClimbOptions()) is None


def test_a_device_that_is_not_here() -> None:
    usable("cpu")
    if torch.backends.mps.is_available():
        usable("mps")
        return
    with pytest.raises(WrongMachineError, match="mps cannot be computed on here"):
        usable("mps")


def test_a_climb_compares_and_records(climb: Callable[..., Any]) -> None:
    done = climb("--to", "rollout", "--device", "cpu", "--compare", "cpu")
    assert done.exit_code == 0, done.stderr
    rungs = {rung.name: rung for rung in done.run.rungs}
    assert list(rungs) == ["env", "data", "forward", "rollout"]
    assert rungs["forward"].details["divergence"]["gradient"]["largest"] == 0.0
    assert rungs["rollout"].details["equal"] == rungs["rollout"].details["tokens"]
    assert done.run.status == "passed"


def test_a_climb_without_the_device_says_so(climb: Callable[..., Any], tmp_path: Path) -> None:
    if torch.backends.mps.is_available():
        pytest.skip("this machine has the device")
    done = climb("--to", "rollout", "--device", "mps", "--compare", "cpu")
    assert done.exit_code == WrongMachineError.exit_code
    assert "mps cannot be computed on here" in done.problems
