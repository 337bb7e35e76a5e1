"""Generation: one request's answer is its own, ends where it must, and has the probabilities that it says."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")

import torch
import transformers

from harness.adapt.rollout import generator as module
from harness.adapt.rollout.generator import Generation, Generator, Request

ROOT = Path(__file__).parents[2]
EOS, PAD = 258, 256
Ask = Callable[..., Request]

# --- one answer, whatever else is in the batch --------------------------------------------------------------


def requests(ask: Ask) -> list[Request]:
    """Eight that differ in length, temperature and limits: of one bucket, and of all three widths in it."""
    options: list[dict[str, Any]] = [{}, {"top_k": 20}, {"top_p": 0.8}, {"temperature": 0}]
    return [ask(n, length=3 + 7 * n, max_tokens=8 + n, **options[n % 4]) for n in range(8)]


def differing(
    generate: Callable[[Sequence[Request]], list[Generation]], asked: Sequence[Request]
) -> list[str]:
    """Where an answer depends on the batch: alone, in threes, in eights, shuffled, in another row."""
    alone = [generate([request])[0] for request in asked]
    found = []

    def compare(what: str, order: Sequence[int]) -> None:
        answers = generate([asked[n] for n in order])
        found.extend(f"{what}: request {n}" for n, got in zip(order, answers, strict=True) if got != alone[n])

    for start in (0, 3):
        compare(f"three from {start}", range(start, start + 3))
    compare("eight", range(8))
    for seed in range(3):
        compare(f"shuffled with {seed}", random.Random(seed).sample(range(8), 8))
    for row in range(8):
        compare(f"in row {row}", [1] * row + [0] + [2] * (7 - row))
    return found


def test_an_answer_does_not_depend_on_the_batch(generator: Generator, ask: Ask) -> None:
    """Tokens and log-probabilities to the bit: else no two runs are alike, as arrival times differ."""
    assert differing(generator.generate, requests(ask)) == []


def test_nor_on_how_many_prompts_there_are(folder: Path, ask: Ask) -> None:
    """More distinct prompts than a block reads, and prompts that several requests share."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa")
    generator = Generator(model, device="cpu", rows=40, eos_ids={EOS}, pad_id=PAD)
    assert generator.block == module.BLOCK_SMALL
    prompts = [ask(n, length=length).prompt_ids for n, length in enumerate((5, 20, 40) * 7)]
    asked = [Request(prompt_ids=prompts[n % 21], sampling=ask(n).sampling) for n in range(40)]
    alone = [generator.generate([one])[0] for one in asked]
    assert len({tuple(one.token_ids) for one in alone}) == 40
    assert generator.generate(asked) == alone
    assert generator.generate(asked[::-1]) == alone[::-1]


def test_a_prompt_that_requests_share_is_read_once(generator: Generator, ask: Ask) -> None:
    read = []
    handle = generator.model.register_forward_hook(lambda _m, _a, out: read.append(out.logits.shape))
    generator.generate([Request(prompt_ids=ask(0).prompt_ids, sampling=ask(n).sampling) for n in range(8)])
    generator.generate([ask(n, length=5 if n % 2 else 40, max_tokens=1) for n in range(8)])
    handle.remove()
    assert len(read) == 12 + 2, "twelve tokens from one pass over the prompt, and one pass for each width"


def test_a_larger_model_reads_fewer_at_once() -> None:
    """In it an idle row costs as much as a busy one."""
    assert module.block(64, module.SMALL_PARAMETERS - 1) == module.BLOCK_SMALL
    assert module.block(64, module.SMALL_PARAMETERS) == module.BLOCK_LARGE
    assert module.block(2, module.SMALL_PARAMETERS) == 2


def test_the_comparison_above_finds_shared_noise(
    generator: Generator, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual fault: rows take their random numbers from one generator, in the order of the batch."""

    def shared(samplings: Sequence[Any]) -> torch.Tensor:
        longest = max(sampling.max_tokens for sampling in samplings)
        source = torch.Generator().manual_seed(0)
        return torch.rand(len(samplings), longest, generator=source, dtype=torch.float64)

    monkeypatch.setattr(generator, "_noise", shared)
    found = differing(generator.generate, requests(ask))
    assert any("in row" in text for text in found)
    assert any("shuffled" in text for text in found)


def test_threads_are_pinned(folder: Path, ask: Ask) -> None:
    """Two threads split a product's rows between them, and a row's last bits then depend on its place."""
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa")
    generator = Generator(model, device="cpu", rows=8, eos_ids={EOS}, pad_id=PAD)
    assert torch.get_num_threads() == 1
    assert differing(generator.generate, requests(ask)) == []


def test_other_threads_in_the_environment_give_the_same_bits(
    generator: Generator, folder: Path, ask: Ask
) -> None:
    code = f"""
import json, transformers
from harness.adapt.rollout.generator import Generator, Request
from harness.adapt.rollout.sampling import Sampling
model = transformers.AutoModelForCausalLM.from_pretrained({str(folder)!r}, attn_implementation="sdpa")
generator = Generator(model, device="cpu", rows=8, eos_ids={{258}}, pad_id=256)
request = Request(prompt_ids={ask(3).prompt_ids}, sampling=Sampling(seed=3, max_tokens=12))
answer = generator.generate([request])[0]
print(json.dumps([answer.token_ids, [value.hex() for value in answer.log_probs]]))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    here = generator.generate([ask(3)])[0]
    assert json.loads(done.stdout) == [here.token_ids, [value.hex() for value in here.log_probs]]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 33, 64, 100])
def test_a_longer_prompt_gives_the_same_distribution_padded(
    generator: Generator, ask: Ask, length: int
) -> None:
    """Padding must be invisible: a wrong mask or position shows against a forward without any."""
    request = ask(length, length=length, temperature=0.7)
    assert (request.width, request.bucket) in {(16, 64), (32, 64), (64, 64), (128, 128)}
    answer = generator.generate([request])[0]
    assert plain(generator.model, request, answer) == pytest.approx(answer.log_probs, abs=1e-6)


def plain(model: Any, request: Request, answer: Generation) -> list[float]:
    """The response's log-probabilities by one forward pass over the whole text, without cache or padding."""
    ids = torch.tensor([[*request.prompt_ids, *answer.token_ids]])
    start = len(request.prompt_ids)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, start - 1 : -1].double()
    log_probs = torch.log_softmax(logits / request.sampling.temperature, -1)
    return [float(row[token]) for row, token in zip(log_probs, answer.token_ids, strict=True)]


def test_the_comparison_above_finds_wrong_positions(
    generator: Generator, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual fault of left padding: positions that count the pads."""
    real = generator._prompts

    def unmasked(prompts: Sequence[tuple[int, ...]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = real(prompts, width)
        return ids, torch.ones_like(mask)

    monkeypatch.setattr(generator, "_prompts", unmasked)
    answer = generator.generate([ask(3)])[0]
    assert plain(generator.model, ask(3), answer) != pytest.approx(answer.log_probs, abs=1e-4)


def test_idle_rows_hold_no_nan(generator: Generator, ask: Ask) -> None:
    """One request in eight rows: the other seven are padding, and a NaN there spreads in a reduction."""
    seen = []
    handle = generator.model.register_forward_hook(lambda _m, _a, out: seen.append(out.logits))
    generator.generate([ask(0)])
    handle.remove()
    assert seen[0].shape[0] == 8
    assert all(bool(torch.isfinite(logits).all()) for logits in seen)


def test_samples_of_one_prompt_differ_by_their_seeds(generator: Generator, ask: Ask) -> None:
    """Equal samples in a group make every advantage of GRPO zero."""
    group = [Request(prompt_ids=ask(0).prompt_ids, sampling=ask(seed).sampling) for seed in range(8)]
    answers = generator.generate(group)
    assert len({tuple(answer.token_ids) for answer in answers}) == 8
    assert generator.generate([group[5]])[0] == answers[5]


@pytest.mark.parametrize("count", [2, 9])
def test_a_batch_that_does_not_fit_is_refused(generator: Generator, ask: Ask, count: int) -> None:
    asked = [ask(0), ask(1, length=70)] if count == 2 else [ask(n) for n in range(count)]
    with pytest.raises(ValueError, match="of one bucket"):
        generator.generate(asked)


# --- where an answer ends -----------------------------------------------------------------------------------


class Scripted(torch.nn.Module):  # type: ignore[misc]
    """A causal LM that says ``script[p]`` after position ``p``, and 7 elsewhere."""

    def __init__(self, script: Mapping[int, int]) -> None:
        super().__init__()
        self.script = script

    def forward(self, *, input_ids: Any, position_ids: Any, **_rest: Any) -> SimpleNamespace:
        logits = torch.full((*input_ids.shape, 260), -50.0)
        for row in range(len(input_ids)):
            logits[row, -1, self.script.get(int(position_ids[row, -1]), 7)] = 50.0
        return SimpleNamespace(logits=logits)


def scripted(script: Mapping[int, int]) -> Generator:
    return Generator(Scripted(script), device="cpu", rows=4, eos_ids={EOS, 259}, pad_id=PAD)


# A prompt of 5 tokens: what follows position 4 is the first token of the response.
ENDS = [
    pytest.param({4: EOS}, {}, [EOS], id="at once"),
    pytest.param({6: EOS}, {}, [7, 7, EOS], id="after two"),
    pytest.param({5: 259}, {}, [7, 259], id="a second end token"),
    pytest.param({}, {"max_tokens": 4}, [7] * 4, id="at the limit"),
    pytest.param(
        {4: EOS, 6: EOS}, {"max_tokens": 4, "ignore_eos": True}, [EOS, 7, EOS, 7], id="not when told so"
    ),
    pytest.param({4: EOS}, {"max_tokens": 0}, [], id="before it begins"),
]


@pytest.mark.parametrize(("script", "options", "expected"), ENDS)
def test_where_a_response_ends(
    ask: Ask, script: dict[int, int], options: dict[str, Any], expected: list[int]
) -> None:
    answer = scripted(script).generate([ask(1, **options)])[0]
    assert (answer.token_ids, len(answer.log_probs), answer.aborted) == (expected, len(expected), False)


def test_a_row_that_has_ended_waits_for_the_others(ask: Ask) -> None:
    short, long = scripted({6: EOS}).generate([ask(1, length=5), ask(2, length=9, max_tokens=6)])
    assert (short.token_ids, long.token_ids) == ([7, 7, EOS], [7] * 6)


def test_an_abort_keeps_what_is_there(ask: Ask) -> None:
    """verl's trainer continues an aborted response from its tokens: they must not be lost."""
    asks = iter([False, False, False, True])
    ended, open_ = scripted({5: EOS}).generate([ask(1), ask(2, length=7)], lambda: next(asks))
    assert (ended.token_ids, ended.aborted) == ([7, EOS], False)
    assert (open_.token_ids, len(open_.log_probs), open_.aborted) == ([7, 7, 7], 3, True)


# --- weights ------------------------------------------------------------------------------------------------


def test_new_weights_change_the_answer(generator: Generator, ask: Ask) -> None:
    before = generator.generate([ask(0)])[0]
    sent = {name: tensor + 0.5 for name, tensor in generator.model.state_dict().items()}
    assert generator.load_weights(sent) == set(sent) >= generator.parameter_names()
    assert all(torch.equal(tensor, sent[name]) for name, tensor in generator.model.state_dict().items())
    assert generator.generate([ask(0)])[0] != before


@pytest.mark.parametrize(
    ("name", "shape", "error"),
    [
        ("model.layers.9.mlp.up_proj.weight", (1,), KeyError),
        ("lm_head.weight", (260, 63), ValueError),
        ("lm_head.weight", (64,), ValueError),
    ],
)
def test_weights_that_do_not_fit_are_named(
    generator: Generator, name: str, shape: tuple[int, ...], error: type[Exception]
) -> None:
    """``copy_`` would broadcast a wrong shape in silence."""
    with pytest.raises(error, match=name):
        generator.load_weights({name: torch.zeros(shape)})


def test_tied_weights(folder: Path, ask: Ask) -> None:
    """A tied head is one parameter with two names, and the trainer sends it under both."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = True
    model = transformers.AutoModelForCausalLM.from_config(config)
    generator = Generator(model, device="cpu", rows=2, eos_ids={EOS}, pad_id=PAD)
    sent = {name: torch.full_like(tensor, 0.01) for name, tensor in model.state_dict().items()}
    assert "lm_head.weight" in sent
    assert "lm_head.weight" not in generator.parameter_names()
    assert generator.load_weights(sent) >= generator.parameter_names()
    assert torch.equal(model.lm_head.weight, sent["lm_head.weight"])
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_width_and_bucket_depend_on_the_prompt_alone(ask: Ask) -> None:
    asked = {length: ask(0, length=length) for length in (1, 16, 17, 32, 33, 64, 65)}
    assert {n: one.width for n, one in asked.items()} == {
        1: 16,
        16: 16,
        17: 32,
        32: 32,
        33: 64,
        64: 64,
        65: 128,
    }
    assert {n: one.bucket for n, one in asked.items()} == dict.fromkeys((1, 16, 17, 32, 33, 64), 64) | {
        65: 128
    }
