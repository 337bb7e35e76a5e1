"""Concurrent requests in, batches of one bucket out.

verl's agent loops send each sample as its own request. They arrive within milliseconds of each other;
the batcher waits for a short silence, fills a batch with requests of one bucket, and runs it in a
thread, so that the server keeps answering.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from harness.adapt.rollout.generator import Generation, Request

T = TypeVar("T")

# Requests of one step come from one event loop, a Ray call each: gaps of 1 to 3 ms on 2 cores. A wait
# of 10 ms costs 1 % of a step of the tiny model and spares whole batches.
QUIET_SECONDS = 0.01


class Backend(Protocol):
    """What answers a batch: the real generator or the mock."""

    rows: int

    def generate(self, requests: Sequence[Request], stop: Callable[[], bool]) -> list[Generation]:
        """Answer at most ``rows`` requests of one bucket."""
        ...


class Batcher:
    """Queues requests and answers them in batches, one batch at a time."""

    def __init__(self, backend: Backend) -> None:
        """Start idle; the loop task begins with the first request."""
        self._backend = backend
        self._waiting: list[tuple[Request, asyncio.Future[Generation]]] = []
        self._arrived = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._rejecting = False
        self._aborting = False
        self._loop: asyncio.Task[None] | None = None
        # One thread: weights must never change under a running batch.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="generate")

    async def submit(self, request: Request) -> Generation:
        """Answer one request; it shares a batch with whoever came at the same time."""
        if self._rejecting:
            message = "generation is aborted and requests are rejected until resume_generation()"
            raise RuntimeError(message)
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._arrived.set()
        return await future

    async def exclusive(self, work: Callable[[], T]) -> T:
        """Run ``work`` between batches, in the thread that generates."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def abort(self, *, reject: bool) -> None:
        """End the running batch at its next token; hold (or reject) what comes until :meth:`resume`."""
        self._open.clear()
        self._rejecting = reject
        self._aborting = True
        await self.exclusive(lambda: None)

    def resume(self) -> None:
        """Take requests again."""
        self._aborting = self._rejecting = False
        self._open.set()

    def _must_stop(self) -> bool:
        return self._aborting

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await self._open.wait()
            await self._quiet()
            batch = self._take()
            if not batch:
                continue
            requests = [request for request, _ in batch]
            try:
                answers = await self.exclusive(partial(self._backend.generate, requests, self._must_stop))
            except Exception as error:  # noqa: BLE001 - it belongs to the callers, who wait for it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    async def _quiet(self) -> None:
        """Wait until a full batch is there, or none has come for a moment."""
        seen = -1
        while seen != len(self._waiting) < self._backend.rows:
            seen = len(self._waiting)
            await asyncio.sleep(QUIET_SECONDS)

    def _take(self) -> list[tuple[Request, asyncio.Future[Generation]]]:
        """The oldest request and those of its bucket, up to a full batch."""
        if not self._waiting:
            self._arrived.clear()
            return []
        bucket = self._waiting[0][0].bucket
        batch = [item for item in self._waiting if item[0].bucket == bucket][: self._backend.rows]
        taken = {id(item) for item in batch}
        self._waiting = [item for item in self._waiting if id(item) not in taken]
        if not self._waiting:
            self._arrived.clear()
        return batch
