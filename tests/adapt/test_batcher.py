"""The batcher: many callers at once, one batch at a time, and nobody left waiting for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")

from harness.adapt.rollout.batcher import Batcher
from harness.adapt.rollout.generator import Generation, Generator, Request

Ask = Callable[..., Request]
SHORT = 0.05


class Recorder:
    """A backend that answers with the prompt, and notes each batch and whether two ran at once."""

    def __init__(self, *, rows: int = 4, fail_on: int | None = None, endless: bool = False) -> None:
        self.rows = rows
        self.fail_on = fail_on
        self.endless = endless
        self.batches: list[list[Request]] = []
        self.inside = threading.Lock()
        self.overlapped = False
        self.began = threading.Event()

    def alone(self) -> None:
        if not self.inside.acquire(blocking=False):
            self.overlapped = True
            return
        time.sleep(0.002)  # long enough for another thread to come in, if one could
        self.inside.release()

    def generate(self, requests: Sequence[Request], stop: Callable[[], bool]) -> list[Generation]:
        self.batches.append(list(requests))
        self.alone()
        if len(self.batches) == self.fail_on:
            message = "planted"
            raise ValueError(message)
        self.began.set()
        while self.endless and not stop():
            time.sleep(0.001)
        return [Generation(token_ids=list(r.prompt_ids), aborted=stop()) for r in requests]


def run(work: Coroutine[Any, Any, None]) -> None:
    """A test that hangs is a finding too, but must end."""
    asyncio.run(asyncio.wait_for(work, timeout=20))


def test_everyone_gets_their_own_answer(ask: Ask) -> None:
    """Forty requests of three lengths at once: full batches of one bucket, and no answer swapped."""
    backend = Recorder()
    asked = [ask(n, length=(5, 70, 140)[n % 3]) for n in range(40)]

    async def work() -> None:
        batcher = Batcher(backend)
        answers = await asyncio.gather(*map(batcher.submit, asked))
        assert [tuple(a.token_ids) for a in answers] == [r.prompt_ids for r in asked]

    run(work())
    assert all(len({r.bucket for r in batch}) == 1 for batch in backend.batches)
    assert sorted(map(len, backend.batches)) == [1, 1, 2, *[4] * 9]
    assert not backend.overlapped


def test_requests_that_come_apart_are_still_answered(ask: Ask) -> None:
    backend = Recorder()

    async def work() -> None:
        batcher = Batcher(backend)
        for n in range(3):
            assert (await batcher.submit(ask(n))).token_ids == list(ask(n).prompt_ids)

    run(work())
    assert len(backend.batches) == 3


def test_the_real_generator_behind_it(generator: Generator, ask: Ask) -> None:
    """Twenty requests through eight rows, in two orders of arrival: the same bits."""
    asked = [ask(n) for n in range(20)]

    async def together(order: Sequence[int]) -> dict[int, Generation]:
        batcher = Batcher(generator)
        answers = await asyncio.gather(*(batcher.submit(asked[n]) for n in order))
        return dict(zip(order, answers, strict=True))

    forward, backward = asyncio.run(together(range(20))), asyncio.run(together(range(19, -1, -1)))
    assert forward == {n: backward[n] for n in range(20)}


def test_weights_never_change_under_a_batch(ask: Ask) -> None:
    """``exclusive`` and batches in turn: half-new weights would give answers of no policy at all."""
    backend = Recorder()

    async def work() -> None:
        batcher = Batcher(backend)
        answers = [batcher.submit(ask(n)) for n in range(20)]
        loads = [batcher.exclusive(backend.alone) for _ in range(20)]
        await asyncio.gather(*(work for pair in zip(answers, loads, strict=True) for work in pair))

    run(work())
    assert not backend.overlapped


def test_the_check_above_sees_an_overlap() -> None:
    """Planted: the same two works in threads of their own."""
    backend = Recorder()

    async def work() -> None:
        await asyncio.gather(*(asyncio.to_thread(backend.alone) for _ in range(4)))

    run(work())
    assert backend.overlapped


def test_an_exception_reaches_all_who_wait_and_the_batcher_lives_on(ask: Ask) -> None:
    """A dead loop task would leave every later request, and so the trainer, waiting without a word."""
    backend = Recorder(fail_on=1)

    async def work() -> None:
        batcher = Batcher(backend)
        results = await asyncio.gather(*(batcher.submit(ask(n)) for n in range(4)), return_exceptions=True)
        assert [str(result) for result in results] == ["planted"] * 4
        assert (await batcher.submit(ask(9))).token_ids == list(ask(9).prompt_ids)

    run(work())


def test_an_exception_in_exclusive_work_is_the_callers_own(ask: Ask) -> None:
    async def work() -> None:
        batcher = Batcher(Recorder())
        with pytest.raises(ZeroDivisionError):
            await batcher.exclusive(lambda: 1 // 0)
        assert (await batcher.submit(ask(1))).token_ids == list(ask(1).prompt_ids)

    run(work())


def test_a_caller_who_gives_up_does_not_disturb_the_others(ask: Ask) -> None:
    async def work() -> None:
        batcher = Batcher(Recorder())
        first, second = (asyncio.create_task(batcher.submit(ask(n))) for n in (1, 2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).token_ids == list(ask(2).prompt_ids)
        assert (await batcher.submit(ask(3))).token_ids == list(ask(3).prompt_ids)

    run(work())


async def _answered(task: asyncio.Task[Generation]) -> bool:
    done, _ = await asyncio.wait([task], timeout=SHORT)
    return bool(done)


def test_an_abort_ends_the_batch_and_holds_what_comes(ask: Ask) -> None:
    backend = Recorder(endless=True)

    async def work() -> None:
        batcher = Batcher(backend)
        running = asyncio.create_task(batcher.submit(ask(1)))
        await asyncio.to_thread(backend.began.wait)
        assert not await _answered(running)
        await batcher.abort(reject=False)
        assert (await running).aborted
        held = asyncio.create_task(batcher.submit(ask(2)))
        assert not await _answered(held)
        assert len(backend.batches) == 1
        backend.endless = False
        batcher.resume()
        assert not (await held).aborted

    run(work())


def test_an_abort_that_rejects_says_so(ask: Ask) -> None:
    async def work() -> None:
        batcher = Batcher(Recorder())
        await batcher.abort(reject=True)
        with pytest.raises(RuntimeError, match="resume_generation"):
            await batcher.submit(ask(1))
        batcher.resume()
        assert (await batcher.submit(ask(1))).token_ids == list(ask(1).prompt_ids)

    run(work())


def test_an_abort_when_nothing_runs_returns(ask: Ask) -> None:
    """The trainer aborts at each step's end, mostly with nothing left to abort."""

    async def work() -> None:
        batcher = Batcher(Recorder())
        await batcher.abort(reject=False)
        await batcher.abort(reject=False)
        batcher.resume()
        assert not (await batcher.submit(ask(1))).aborted

    run(work())


def test_what_waits_during_an_abort_is_answered_after_it(ask: Ask) -> None:
    """Requests that were queued, not yet in a batch, are held too: none is lost, none runs on old weights."""
    backend = Recorder(rows=1)

    async def work() -> None:
        batcher = Batcher(backend)
        tasks = [asyncio.create_task(batcher.submit(ask(n))) for n in range(3)]
        await asyncio.sleep(0)
        await batcher.abort(reject=False)
        before = len(backend.batches)
        await asyncio.sleep(SHORT)
        assert len(backend.batches) == before
        batcher.resume()
        answers = await asyncio.gather(*tasks)
        assert [a.token_ids for a in answers] == [list(ask(n).prompt_ids) for n in range(3)]

    run(work())
