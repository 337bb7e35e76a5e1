"""Tokens a second of the hf rollout against transformers' `generate`, which TRL's GRPOTrainer calls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from measure import Aim, Case
from place import Place

from harness.adapt.rollout.generator import Generator, Request
from harness.adapt.rollout.sampling import Sampling
from harness.data import tiny_model, tiny_tokenizer

NEW, WIDTH = 16, 60
# Short ones among long ones, so that a padded batch is wider than most of its rows need.
SHORTEST = 8
REPEATS = 5


def cases(place: Place) -> Iterator[Case]:
    """Batches of 1, 8 and 64 prompts of one length, and 64 of many lengths; one thread on both sides."""
    del place  # nothing is written
    tokenizer = tiny_tokenizer.make()
    ends = {"eos": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}
    model = tiny_model.make(1, **ends)
    for rows, ragged in ((1, False), (8, False), (64, False), (64, True)):
        prompts = _prompts(rows, ragged=ragged)
        kind = f"of {SHORTEST} to {WIDTH} tokens" if ragged else f"of {WIDTH} tokens"
        yield Case(
            id=f"generate-{rows}{'-ragged' if ragged else ''}",
            what=f"tiny model: {NEW} tokens for {rows} prompts {kind}",
            unit="tokens/s",
            sides={
                "hf rollout": lambda prompts=prompts: _rate(_ours(model, prompts, ends), prompts),
                "generate() of transformers": lambda prompts=prompts: _rate(
                    _theirs(model, prompts, ends), prompts
                ),
            },
            rounds=4,
            aim=Aim(at_least=1.0, against="generate() of transformers"),
            notes=["both return a log-probability for each token"],
        )


def _prompts(rows: int, *, ragged: bool) -> list[tuple[int, ...]]:
    draw = random.Random(1)
    lengths = [draw.randint(SHORTEST, WIDTH) if ragged else WIDTH for _ in range(rows)]
    return [tuple(draw.randrange(32, 200) for _ in range(length)) for length in lengths]


def _rate(answer: Callable[[], int], prompts: Sequence[tuple[int, ...]]) -> float:
    torch.set_num_threads(1)
    wanted = NEW * len(prompts)
    assert answer() == wanted, "a side stopped early, and the two would not be comparable"
    begin = time.perf_counter()
    for _ in range(REPEATS):
        answer()
    return REPEATS * wanted / (time.perf_counter() - begin)


def _ours(model: Any, prompts: Sequence[tuple[int, ...]], ends: dict[str, int]) -> Callable[[], int]:
    generator = Generator(model, device="cpu", rows=len(prompts), eos_ids=[ends["eos"]], pad_id=ends["pad"])
    requests = [
        Request(prompt_ids=ids, sampling=Sampling(max_tokens=NEW, seed=number, ignore_eos=True))
        for number, ids in enumerate(prompts)
    ]
    # As the batcher makes them: one batch a bucket.
    batches = [
        [one for one in requests if one.bucket == bucket] for bucket in {one.bucket for one in requests}
    ]

    def answer() -> int:
        return sum(len(one.token_ids) for batch in batches for one in generator.generate(batch))

    return answer


def _theirs(model: Any, prompts: Sequence[tuple[int, ...]], ends: dict[str, int]) -> Callable[[], int]:
    width = max(map(len, prompts))
    ids = torch.tensor([[ends["pad"]] * (width - len(one)) + list(one) for one in prompts])
    mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts])

    def answer() -> int:
        with torch.inference_mode():
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                min_new_tokens=NEW,
                max_new_tokens=NEW,
                pad_token_id=ends["pad"],
                return_dict_in_generate=True,
                output_logits=True,
            )
            chosen = out.sequences[:, width:]
            torch.stack(out.logits, 1).log_softmax(-1).gather(-1, chosen.unsqueeze(-1))
        return int(chosen.numel())

    return answer
