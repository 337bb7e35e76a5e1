"""The process in which a user's reward function is called, by verl's own loader and manager.

A process of its own: a pattern that never ends holds Python's lock, so that no time limit inside the process
would come to its turn; and a function may end its process. The order comes on standard input, one JSON line a
call goes to the given descriptor.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.data import tiny_model
from harness.data.model_check import tokenizer_of
from harness.ladder import batch as batches
from harness.ladder import compose, reward_source
from harness.ladder.reward_load import Asked, load, place
from harness.profiles.hydra import word

_NEW_TOKENS = 32


def main() -> None:
    """Score the ordered responses from ``first`` on."""
    order = json.load(sys.stdin)
    answers = os.fdopen(order["answers"], "w", buffering=1, encoding="utf-8")
    config = settings(order["file"], order["function"], order["manager"])
    rows = batches.rows(Path(order["data"]), order["rows"])
    tokenizer = tokenizer_of(order["model"])
    asyncio.run(_score(order, config, rows, tokenizer, answers))
    answers.close()
    # A thread that the function left behind must not keep the process.
    sys.stdout.flush()
    os._exit(0)


def settings(file: str, function: str, manager: str) -> Any:
    """verl's configuration with this reward function."""
    return compose.compose_config(
        [
            word("reward.custom_reward_function.path", file),
            word("reward.custom_reward_function.name", function),
            word("reward.reward_manager.name", manager),
        ]
    )


async def _score(order: Any, config: Any, rows: list[Any], tokenizer: Any, answers: Any) -> None:
    def tell(**line: Any) -> None:
        answers.write(json.dumps(line) + "\n")

    batched = order["manager"] == "batch"
    asked = Asked(
        file=order["file"],
        function=order["function"],
        given=order["given"],
        passed=reward_source.PASSED_IN_BATCHES if batched else reward_source.PASSED,
    )
    tell(loading=True)
    manager, finding = load(asked, lambda: (_batch if batched else single)(config, tokenizer))
    if finding is not None:
        tell(finding=finding.document())
        return
    tell(ready=True)
    model = None
    for number, item in enumerate(order["responses"]):
        if number < order["first"]:
            continue
        row, text = rows[item["row"]], item["text"]
        if text is None:
            model = model or _model(order["model"], tokenizer)
            text = _generate(model, tokenizer, row)
        data = _item(tokenizer, row, text)
        tell(begin=number, response=text)
        tell(end=number, **await _call(manager, data, order["file"], lambda: tell(again=True)))


async def _call(manager: Any, data: Any, file: str, again: Callable[[], None]) -> dict[str, Any]:
    """Two calls; ``again`` is told between them, so that each has its own time."""
    began = time.perf_counter()
    try:
        first = await manager(data)
        again()
        results = [first, await manager(data)]
    except BaseException as error:  # noqa: BLE001 - exit() too would end verl's worker
        return {"error": place(error, file)}
    return {
        "seconds": (time.perf_counter() - began) / 2,
        "scores": [_number(score) for score, _keys in results],
        "shown": [repr(score) for score, _keys in results],
        "keys": sorted(results[0][1]),
    }


def single(config: Any, tokenizer: Any) -> tuple[Any, Any]:
    """verl's manager as a coroutine, and the user's own function in it."""
    from verl.trainer.ppo.reward import load_reward_manager

    manager = load_reward_manager(config, tokenizer)

    async def call(data: Any) -> tuple[Any, list[str]]:
        answer = await manager.run_single(data)
        return answer["reward_score"], list(answer["reward_extra_info"])

    return call, _inner(manager.compute_score)


def _batch(config: Any, tokenizer: Any) -> tuple[Any, Any]:
    """verl's batch manager, from where it still is; the trainer of 0.9.1 no longer finds it."""
    from verl import DataProto
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.workers.reward_manager import get_reward_manager_cls

    function = get_custom_reward_fn(config)
    manager = get_reward_manager_cls("batch")(tokenizer=tokenizer, num_examine=0, compute_score=function)

    async def call(data: Any) -> tuple[Any, list[str]]:
        # Two responses, so that a function that returns one score for all is seen.
        scores = manager.verify(DataProto.concat([data, data]))
        if len(scores) != 2:
            raise ValueError(f"{len(scores)} scores for 2 responses")
        score = scores[0]
        return (score["score"], list(score)) if isinstance(score, dict) else (score, ["acc"])

    return call, _inner(function)


def _inner(wrapped: Any) -> Any:
    """What verl wrapped: ``partial(_call_with_kwargs, function, kwargs)`` (trainer/ppo/reward.py)."""
    return wrapped.args[0] if isinstance(wrapped, partial) else wrapped


def _item(tokenizer: Any, row: dict[str, Any], text: str) -> Any:
    import numpy as np
    from verl import DataProto

    prompt = batches.prompt_ids(tokenizer, row)
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    tensors = batches.padded([prompt], [ids], pad_id=tokenizer.pad_token_id or 0)
    extra = {key: np.array([value], dtype=object) for key, value in row.items() if key != "prompt"}
    return DataProto.from_dict(tensors=tensors, non_tensors=extra)


def _model(name: str, tokenizer: Any) -> Any:
    if name == "tiny":
        return tiny_model.make(1, eos=tokenizer.eos_token_id, pad=tokenizer.pad_token_id)
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, local_files_only=True).eval()


def _generate(model: Any, tokenizer: Any, row: dict[str, Any]) -> str:
    torch.manual_seed(1)
    prompt = torch.tensor([batches.prompt_ids(tokenizer, row)])
    with torch.no_grad():
        whole = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=True, max_new_tokens=_NEW_TOKENS
        )
    return str(tokenizer.decode(whole[0, prompt.shape[1] :], skip_special_tokens=True))


def _number(score: Any) -> float | None:
    """The score as verl's float tensor takes it; none where it does not.

    It makes one tensor of a batch's scores: one in a list of its own gives the tensor a second dimension.
    """
    try:
        scores = torch.tensor([score, score], dtype=torch.float32)
        return float(scores[0].item()) if scores.shape == (2,) else None
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


if __name__ == "__main__":
    main()
