"""The rollout server as verl calls it, with verl's own configuration: answers, weights, seeds, aborts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")
pytest.importorskip("verl", reason="verl comes with the lock")

import torch
from transformers import AutoModelForCausalLM

from harness.adapt.rollout.server import RolloutServer
from harness.adapt.rollout.weights import Digest, pack
from harness.ladder import compose
from harness.ladder.inputs import Inputs
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import for_rung, words
from harness.profiles import load

PROMPTS = [[(17 * n + place) % 250 for place in range(4 + n)] for n in range(8)]
pytestmark = pytest.mark.filterwarnings("ignore:Ray state API:DeprecationWarning")
Work = Callable[[RolloutServer], Coroutine[Any, Any, Any]]


@pytest.fixture(scope="module")
def config(folder: Path) -> Any:
    """verl's whole configuration, composed as the ``ppo`` rung does."""
    inputs = Inputs(
        model=folder,
        train=folder / "none.parquet",
        val=folder / "none.parquet",
        is_tiny=True,
        prompt_length=64,
        response_length=16,
        batch=8,
        group=1,
    )
    rung = for_rung(ClimbOptions(), inputs, rollout="hf", steps=1)
    return compose.compose_config(words(load("cpu"), rung, ())).actor_rollout_ref


@pytest.fixture(scope="module")
def weights(folder: Path) -> dict[str, Any]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())


@pytest.fixture
def serve(config: Any, weights: dict[str, Any]) -> Callable[[Work], Any]:
    """Run ``work`` with a server that holds the tiny model's weights, at step 0."""

    async def session(work: Work) -> Any:
        server = RolloutServer(name="hf", config=config.rollout, model_config=config.model, replica_rank=0)
        await server.launch_server()
        await server.load_weights(pack(weights.items()), last=True)
        await server.set_global_steps(0)
        return await work(server)

    return lambda work: asyncio.run(asyncio.wait_for(session(work), timeout=60))


def ask(server: RolloutServer, number: int, **options: Any) -> Coroutine[Any, Any, Any]:
    """As verl's agent loop asks: a random request id, log-probabilities wanted."""
    params = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0, "logprobs": True, **options}
    return server.generate(PROMPTS[number], params, request_id=f"{random.random()}")


def plain(answer: Any) -> tuple[list[int], list[float] | None]:
    return answer.token_ids, answer.log_probs


def test_an_answer_does_not_depend_on_who_else_asks(serve: Callable[[Work], Any]) -> None:
    """The must of the issue: bit-equal in batches of 1, 3 and 8, and in any order of arrival."""

    async def work(server: RolloutServer) -> None:
        alone = [plain(await ask(server, n, seed=n + 1)) for n in range(8)]

        async def together(order: Sequence[int]) -> None:
            answers = await asyncio.gather(*(ask(server, n, seed=n + 1) for n in order))
            assert [plain(answer) for answer in answers] == [alone[n] for n in order]

        for start in (0, 3, 5):
            await together(range(start, start + 3))
        await together(range(8))
        for seed in range(3):
            await together(random.Random(seed).sample(range(8), 8))
        assert len({tuple(tokens) for tokens, _ in alone}) == 8
        # The comparison can fail: another seed is another answer.
        assert plain(await ask(server, 0, seed=99)) != alone[0]

    serve(work)


def test_a_group_without_seeds_still_differs_and_repeats(serve: Callable[[Work], Any]) -> None:
    """Agent loops other than ours send none: equal samples would make every advantage of GRPO zero."""

    async def work(server: RolloutServer) -> None:
        first = [plain(a) for a in await asyncio.gather(*(ask(server, 0) for _ in range(4)))]
        assert len({tuple(tokens) for tokens, _ in first}) == 4
        await server.set_global_steps(0)
        again = [plain(a) for a in await asyncio.gather(*(ask(server, 0) for _ in range(4)))]
        assert sorted(again) == sorted(first)

    serve(work)


def test_each_step_samples_anew(serve: Callable[[Work], Any]) -> None:
    """The same row comes again in the next epoch: with the same noise it would be explored only once."""

    async def work(server: RolloutServer) -> None:
        before = plain(await ask(server, 0, seed=1))
        await server.set_global_steps(1)
        after = await ask(server, 0, seed=1)
        assert plain(after) != before
        assert after.extra_fields["global_steps"] == 1

    serve(work)


def test_the_digest_is_of_what_came(serve: Callable[[Work], Any], weights: dict[str, Any]) -> None:
    async def work(server: RolloutServer) -> None:
        expected = Digest()
        for name, tensor in weights.items():
            expected.add(name, tensor)
        items = list(weights.items())
        assert await server.load_weights(pack(items[:5]), last=False) is None
        assert await server.load_weights(pack(items[5:]), last=True) == expected.hexdigest()
        changed = {**weights, items[0][0]: items[0][1] + 1}
        assert await server.load_weights(pack(changed.items()), last=True) != expected.hexdigest()

    serve(work)


def test_an_update_that_leaves_a_parameter_out_is_refused(
    serve: Callable[[Work], Any], weights: dict[str, Any]
) -> None:
    """Half-new weights are no policy at all, and nothing else would show it."""

    async def work(server: RolloutServer) -> None:
        short = {name: tensor for name, tensor in weights.items() if "layers.1.mlp" not in name}
        with pytest.raises(RuntimeError, match=r"left out 3 parameters.*layers\.1\.mlp"):
            await server.load_weights(pack(short.items()), last=True)

    serve(work)


def test_new_weights_are_used(serve: Callable[[Work], Any], weights: dict[str, Any]) -> None:
    async def work(server: RolloutServer) -> None:
        before = plain(await ask(server, 0, seed=1))
        moved = {name: tensor + 0.3 * torch.ones_like(tensor).cumsum(-1) for name, tensor in weights.items()}
        await server.load_weights(pack(moved.items()), last=True)
        assert plain(await ask(server, 0, seed=1)) != before

    serve(work)


def test_what_it_cannot_do_it_says_and_lives_on(serve: Callable[[Work], Any]) -> None:
    async def work(server: RolloutServer) -> None:
        with pytest.raises(ValueError, match="min_p"):
            await ask(server, 0, min_p=0.5)
        with pytest.raises(ValueError, match="text only"):
            await server.generate(PROMPTS[0], {}, request_id="x", image_data=[b""])
        assert (await ask(server, 0, logprobs=False)).log_probs is None

    serve(work)


def test_a_response_is_as_long_as_there_is_room(serve: Callable[[Work], Any]) -> None:
    async def work(server: RolloutServer) -> None:
        answer = await ask(server, 0, seed=1, max_tokens=3, ignore_eos=True)
        assert len(answer.token_ids) == len(answer.log_probs) == 3
        full = await server.generate([5] * 80, {"logprobs": True}, request_id="x")
        assert full.token_ids == []

    serve(work)


def test_an_abort_holds_until_generation_resumes(serve: Callable[[Work], Any]) -> None:
    """verl aborts before it sends weights, and resumes after."""

    async def work(server: RolloutServer) -> None:
        await server.abort_all_requests()
        held = asyncio.create_task(ask(server, 0, seed=1))
        done, _ = await asyncio.wait([held], timeout=0.1)
        assert not done
        await server.resume_generation()
        assert (await held).stop_reason == "completed"

    serve(work)
