"""Sampling parameters and the choice of a token: what is asked for is sampled, or it is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch comes with the lock")

import torch

from harness.adapt.rollout.sampling import Sampling, choose, derive_seed, noise, parse

NEUTRAL = [
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", None),
    ("min_p", 0.0),
    ("n", 1),
    ("stop", []),
    ("detokenize", False),
]
WITH_EFFECT = [
    ("repetition_penalty", 1.1),
    ("presence_penalty", 0.5),
    ("frequency_penalty", -0.5),
    ("min_p", 0.05),
    ("n", 2),
    ("stop", ["\n"]),
    ("logit_bias", {1: 5.0}),
    ("top_q", 3),
]


@pytest.mark.parametrize(("key", "value"), NEUTRAL)
def test_a_neutral_option_changes_nothing(key: str, value: object) -> None:
    """verl's agent loops send these with each request: refusing them would end every run."""
    assert parse({key: value}, seed=3, room=8) == parse({}, seed=3, room=8)


@pytest.mark.parametrize(("key", "value"), WITH_EFFECT)
def test_an_option_with_effect_is_refused(key: str, value: object) -> None:
    """A penalty that is silently ignored trains on samples that nobody asked for."""
    with pytest.raises(ValueError, match=key):
        parse({key: value}, seed=3, room=8)


def test_all_refused_options_are_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"min_p.*logit_bias"):
        parse({"min_p": 0.1, "logit_bias": {}, "temperature": 1.0}, seed=3, room=8)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 8),
        ({"max_tokens": 3}, 3),
        ({"max_new_tokens": 4}, 4),
        ({"max_tokens": 3, "max_new_tokens": 4}, 3),
        ({"max_tokens": 100}, 8),
        ({"max_tokens": None}, 8),
    ],
)
def test_how_long_a_response_may_be(given: dict[str, object], expected: int) -> None:
    assert parse(given, seed=3, room=8).max_tokens == expected


def test_no_room_is_no_token() -> None:
    """A prompt that fills the model's length must not raise in torch.rand."""
    assert parse({"max_tokens": 5}, seed=3, room=-2).max_tokens == 0


@pytest.mark.parametrize(
    ("given", "wanted"),
    [({}, False), ({"logprobs": True}, True), ({"logprobs": 1}, True), ({"logprobs": None}, False)],
)
def test_log_probs_are_given_where_asked(given: dict[str, object], wanted: bool) -> None:
    """vLLM's ``logprobs`` is a count, verl's agent loop sends a bool: both ask for them."""
    assert parse(given, seed=3, room=8).log_probs is wanted


def test_the_requests_own_seed_comes_first() -> None:
    assert (parse({"seed": 9}, seed=3, room=8).seed, parse({}, seed=3, room=8).seed) == (9, 3)


def test_a_derived_seed_is_the_same_in_every_process() -> None:
    """``hash()`` is salted: with it, no two runs would sample alike. The value is fixed here."""
    assert derive_seed(1, "row", 0) == 3641721430919022043
    many = {derive_seed(1, "row", place) for place in range(1000)} | {
        derive_seed(1, "row0"),
        derive_seed(1, "ro", "w"),
    }
    assert len(many) == 1002
    assert all(0 <= seed < 2**63 for seed in many)


# --- the choice, against a reference that is slow, plain Python in float64 -----------------------------


def reference(logits: Sequence[float], sampling: Sampling) -> list[tuple[int, float]]:
    """The tokens left after top-k and top-p, renormalised, in the vocabulary's order."""
    scaled = [value / sampling.temperature for value in logits]
    total = math.fsum(math.exp(value) for value in scaled)
    ranked = sorted(((math.exp(v) / total, -i) for i, v in enumerate(scaled)), reverse=True)
    if sampling.top_k > 0:
        ranked = ranked[: sampling.top_k]
    mass = math.fsum(p for p, _ in ranked)
    kept, before = [], 0.0
    for p, negative in ranked:
        if kept and sampling.top_p < 1 and before >= sampling.top_p * mass:
            break
        # Right at the border float32 and float64 may disagree; nobody can tell which is right.
        assume(sampling.top_p >= 1 or abs(before - sampling.top_p * mass) > 1e-5)
        kept.append((-negative, p))
        before += p
    return sorted((token, p / before) for token, p in kept)


EIGHTHS = st.integers(-48, 48).map(lambda n: n / 8)  # exact in float32, so that equal logits stay equal


@settings(max_examples=300, deadline=None)
@given(
    logits=st.lists(EIGHTHS, min_size=2, max_size=12),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.integers(-1, 14),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 0.99)),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_choose_agrees_with_a_slow_reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, draw: float
) -> None:
    """Token by inverse cumulative distribution after top-k and top-p; log-probability before them."""
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    kept = reference(logits, sampling)
    upper, wanted = 0.0, kept[-1][0]
    for token, p in kept:
        upper += p
        assume(abs(draw - upper) > 1e-5)
        if draw < upper:
            wanted = token
            break
    tokens, log_probs = choose(torch.tensor([logits]), [sampling], torch.tensor([draw], dtype=torch.float64))
    whole = dict(reference(logits, Sampling(temperature=temperature)))
    assert tokens.tolist() == [wanted]
    assert log_probs.item() == pytest.approx(math.log(whole[wanted]), abs=2e-6)


@given(st.lists(EIGHTHS, min_size=2, max_size=12, unique=True), st.floats(0, 1, exclude_max=True))
def test_temperature_0_takes_the_best(logits: list[float], draw: float) -> None:
    """Greedy, whatever the noise; its log-probability is the one at temperature 1."""
    tokens, log_probs = choose(
        torch.tensor([logits]), [Sampling(temperature=0)], torch.tensor([draw], dtype=torch.float64)
    )
    best = max(range(len(logits)), key=logits.__getitem__)
    assert tokens.tolist() == [best]
    assert log_probs.item() == pytest.approx(
        torch.log_softmax(torch.tensor(logits), 0)[best].item(), abs=2e-6
    )


def test_rows_with_other_options_do_not_touch_each_other() -> None:
    logits = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    rows = [Sampling(), Sampling(top_k=2), Sampling(top_p=0.3), Sampling(temperature=0)]
    draws = torch.tensor([0.3, 0.9, 0.99, 0.5], dtype=torch.float64)
    together = choose(logits, rows, draws)
    for row, sampling in enumerate(rows):
        alone = choose(logits[row : row + 1], [sampling], draws[row : row + 1])
        assert (alone[0].item(), alone[1].item()) == (together[0][row].item(), together[1][row].item())


@pytest.mark.parametrize("draw", [0.0, 1 - 2**-53])
def test_a_token_of_probability_0_is_never_chosen(draw: float) -> None:
    """The ends of [0, 1), with impossible tokens at both ends of the vocabulary."""
    logits = torch.tensor([[-torch.inf, 1.0, 2.0, -torch.inf]])
    tokens, _ = choose(logits, [Sampling()], torch.tensor([draw], dtype=torch.float64))
    assert tokens.item() in {1, 2}


# --- the distribution ---------------------------------------------------------------------------------------

LOGITS = [0.0, 1.0, -1.0, 2.0, 0.5, -3.0]
DRAWN = 20_000
# The 0.9999 quantile of chi-square with 5 degrees of freedom; the seeds are fixed, so it never flickers.
CRITICAL = 25.7


def statistic(tokens: torch.Tensor, probabilities: torch.Tensor) -> float:
    counts = torch.bincount(tokens, minlength=len(probabilities)).double()
    expected = probabilities.double() * len(tokens)
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("source", ["one request", "a request each"])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_samples_follow_the_models_distribution(source: str, temperature: float) -> None:
    """Within one request's noise, and over requests whose seeds are derived: both must be fair dice."""
    if source == "one request":
        draws = noise(Sampling(seed=5, max_tokens=DRAWN))
    else:
        draws = torch.cat([noise(Sampling(seed=derive_seed(1, n), max_tokens=1)) for n in range(DRAWN)])
    logits = torch.tensor(LOGITS).expand(DRAWN, -1)
    tokens, _ = choose(logits, [Sampling(temperature=temperature)] * DRAWN, draws)
    right = torch.softmax(torch.tensor(LOGITS) / temperature, 0)
    assert statistic(tokens, right) < CRITICAL
    # The test can fail: a distribution that is wrong by a twentieth of the temperature is far outside.
    wrong = torch.softmax(torch.tensor(LOGITS) / (temperature * 1.05), 0)
    assert statistic(tokens, wrong) > CRITICAL
