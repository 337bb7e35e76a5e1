"""What each profile forbids at run time, and whose line a violation is."""

from __future__ import annotations

import pytest

from harness.adapt.contract.terms import Terms
from harness.adapt.contract.triton import too_much
from harness.adapt.contract.violation import Place, Roots, blame, shown
from harness.adapt.settings import Settings, from_environment
from harness.profiles import load

FLASH = "aten::_scaled_dot_product_flash_attention"


@pytest.mark.parametrize(
    ("profile", "dtypes", "kernels", "flash", "shared"),
    [
        ("cpu", {"bfloat16", "float16"}, set(), False, None),
        ("p40", {"bfloat16", "float16"}, {"triton"}, True, 49152),
        ("a100", {"float16"}, set(), False, 166912),
    ],
)
def test_the_terms_of_a_profile(
    profile: str, dtypes: set[str], kernels: set[str], flash: bool, shared: int | None
) -> None:
    """The A100's own flash kernel is what its profile means by sdpa; the P40 cannot run it."""
    terms = Terms.of(load(profile), "enforce")
    assert set(terms.dtypes) == dtypes
    assert set(terms.kernels) == kernels
    assert (FLASH in terms.operators) is flash
    assert terms.shared_memory == shared


def test_the_reasons_name_the_architectures() -> None:
    terms = Terms.of(load("p40"), "enforce")
    assert "sm_70" in terms.kernels["triton"]
    assert "sm_80" in terms.libraries["flash-attn"]
    assert "sm_80" in terms.attention["flash_attention_2"]
    assert terms.operators[FLASH] == "Its kernel needs compute capability 8.0, and the card has 6.1."


def test_terms_travel_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = Terms.of(load("p40"), "record")
    for name, value in Settings(terms=terms).environment().items():
        monkeypatch.setenv(name, value)
    assert from_environment().terms == terms


def test_without_terms_nothing_is_left_of_an_outer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A climb that is started inside another's environment must not be held to that one's contract."""
    monkeypatch.setenv("VERLOCK_TERMS", Terms.of(load("p40"), "enforce").text())
    for name, value in Settings().environment().items():
        monkeypatch.setenv(name, value)
    assert from_environment().terms is None


@pytest.mark.parametrize(
    ("profile", "bytes_", "refused"),
    [
        ("p40", 49152, False),
        ("p40", 49153, True),
        ("p40", 81920, True),
        ("a100", 81920, False),
        ("cpu", 81920, False),
    ],
)
def test_shared_memory(profile: str, bytes_: int, refused: bool) -> None:
    terms = Terms.of(load(profile), "enforce")
    found = too_much(bytes_, terms)
    assert (found is not None) is refused
    if found:
        assert str(bytes_) in found
        assert "49152" in found


PACKAGES = "/env/lib/python3.11/site-packages"
ROOTS = Roots(verl=f"{PACKAGES}/verl", packages=("/py/lib/python3.11", PACKAGES), harness="/work/harness")
TORCH = Place(file=f"{PACKAGES}/torch/_ops.py", line=1, function="f")
ENGINE = Place(file=f"{PACKAGES}/verl/workers/engine.py", line=1566, function="forward_step")
RAY = Place(file=f"{PACKAGES}/ray/worker.py", line=2, function="g")
REWARD = Place(file="/home/me/reward.py", line=4, function="score")
THREAD = Place(file="/py/lib/python3.11/threading.py", line=9, function="run")
OURS = Place(file="/work/harness/adapt/rollout/generator.py", line=7, function="generate")
SCRIPT = Place(file="/env/bin/verlock", line=5, function="<module>")
FROZEN = Place(file="<frozen runpy>", line=8, function="run")
CHECKOUT = Place(file="/home/me/verl/verl/workers/engine.py", line=3, function="forward_step")
STACKS = [
    pytest.param([TORCH, ENGINE, RAY], ENGINE, f"verl/workers/engine.py:{ENGINE.line}", id="verl"),
    pytest.param([TORCH, REWARD, THREAD, ENGINE], REWARD, "/home/me/reward.py:4", id="the user's reward"),
    pytest.param([TORCH, ENGINE, OURS, RAY], ENGINE, "verl/workers/engine.py:1566", id="called by a patch"),
    pytest.param(
        [TORCH, OURS, THREAD, SCRIPT], OURS, "harness/adapt/rollout/generator.py:7", id="the rollout's thread"
    ),
    pytest.param([FROZEN, TORCH, THREAD], None, None, id="nobody's"),
]


@pytest.mark.parametrize(("stack", "place", "text"), STACKS)
def test_the_line_to_look_at(stack: list[Place], place: Place | None, text: str | None) -> None:
    assert blame(stack, ROOTS) == place
    if place and text:
        assert shown(place, ROOTS) == text


def test_a_checkout_is_verl_too() -> None:
    roots = Roots(verl="/home/me/verl/verl", packages=ROOTS.packages, harness=ROOTS.harness)
    assert blame([TORCH, CHECKOUT], roots) == CHECKOUT
    assert shown(CHECKOUT, roots) == "verl/workers/engine.py:3"
    assert shown(RAY, roots) == "ray/worker.py:2"
