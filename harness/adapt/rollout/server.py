"""The rollout server: a Ray actor that answers verl's requests with batched generation.

The methods are those that verl calls on its own servers (verl/workers/rollout/replica.py and
llm_server.py). The loader that builds the backend is the only difference between ``hf`` and ``mock``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import HFModelConfig
from verl.workers.rollout.replica import TokenOutput

from harness.adapt.rollout.batcher import Batcher
from harness.adapt.rollout.generator import Request
from harness.adapt.rollout.loader import load_hf, load_mock
from harness.adapt.rollout.sampling import derive_seed, parse
from harness.adapt.rollout.weights import Digest, Packed, unpack
from harness.adapt.verls import rollout_seed
from harness.evidence import events

LOADERS = {"hf": load_hf, "mock": load_mock}


class RolloutServer:
    """One replica's server. ``config`` is verl's RolloutConfig, ``model_config`` its HFModelConfig."""

    def __init__(self, *, name: str, config: Any, model_config: Any, replica_rank: int) -> None:
        """Load nothing yet: verl awaits :meth:`launch_server` of all replicas together."""
        self._name = name
        self._config = config
        # verl hands replicas the Hydra node, and workers the dataclass.
        self._model_config = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        self._replica_rank = replica_rank
        self._step = -1
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._covered: set[str] = set()
        self._received = Digest()
        self._adapters: dict[str, Any] = {}
        self._batcher: Batcher | None = None
        self._backend: Any = None

    async def launch_server(self) -> None:
        """Load the model and begin to take requests."""
        self._backend = await asyncio.to_thread(LOADERS[self._name], self._config, self._model_config)
        self._batcher = Batcher(self._backend)
        events.emit("rollout_server", rollout=self._name, replica=self._replica_rank, rows=self._backend.rows)

    @property
    def _ready(self) -> Batcher:
        if self._batcher is None:
            message = "the rollout server got a request before launch_server()"
            raise RuntimeError(message)
        return self._batcher

    async def get_server_address(self) -> tuple[str, int]:
        """Tokens travel through Ray calls only; there is no HTTP port to give."""
        return "ray", 0

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
        **_unused: Any,
    ) -> TokenOutput:
        """Continue one prompt. ``prompt_ids`` are token ids; see ``sampling.parse`` for the parameters."""
        del request_id  # random in verl 0.9.1 (uuid4), so no part of a reproducible seed
        if image_data is not None or video_data is not None:
            message = "the hf rollout generates from text only"
            raise ValueError(message)
        ids = tuple(int(token) for token in prompt_ids)
        room = min(self._config.response_length, self._max_length() - len(ids))
        sampling = parse(sampling_params, seed=self._fallback_seed(ids), room=room)
        # The step makes each epoch's samples new; the prompt tells apart two rows of equal index.
        seeded = derive_seed(sampling.seed, self._step, ids)
        answer = await self._ready.submit(
            Request(prompt_ids=ids, sampling=type(sampling)(**{**vars(sampling), "seed": seeded}))
        )
        return TokenOutput(
            token_ids=answer.token_ids,
            log_probs=answer.log_probs if sampling.log_probs else None,
            stop_reason="aborted" if answer.aborted else "completed",
            extra_fields={"global_steps": self._step},
        )

    def _max_length(self) -> int:
        configured = self._config.max_model_len
        return int(configured or self._config.prompt_length + self._config.response_length)

    def _fallback_seed(self, ids: tuple[int, ...]) -> int:
        """For agent loops that send no seed: how many times this prompt has come in this step."""
        self._seen[ids] += 1
        return derive_seed(rollout_seed(self._config), self._seen[ids])

    async def load_weights(
        self, packed: Packed, *, last: bool, scale: float | None = None, final: bool = True
    ) -> str | None:
        """Take a bucket of weights between batches; after the last one return the digest of what came.

        With ``scale`` they are LoRA adapters. ``final`` is false for base weights whose adapters follow.
        """
        return await self._ready.exclusive(lambda: self._load(packed, last=last, scale=scale, final=final))

    def _load(self, packed: Packed, *, last: bool, scale: float | None, final: bool) -> str | None:
        tensors = unpack(packed)
        for name, tensor in tensors.items():
            self._received.add(name, tensor)
        if scale is None:
            self._covered |= self._backend.load_weights(tensors)
        else:
            self._adapters |= tensors
        if not last:
            return None
        if scale is None:
            self._check_complete()
        else:
            self._covered = self._backend.load_adapters(self._adapters, scale)
            self._adapters = {}
        digest, size, count = self._received.hexdigest(), self._received.bytes, len(self._covered)
        self._covered, self._received = set(), Digest()
        kind = "weights" if final else "base_weights"
        events.emit(kind, replica=self._replica_rank, digest=digest, bytes=size, tensors=count)
        return digest

    def _check_complete(self) -> None:
        missing = sorted(self._backend.parameter_names() - self._covered)
        if missing:
            message = f"the weight update left out {len(missing)} parameters, the first is {missing[0]}"
            raise RuntimeError(message)

    async def set_global_steps(self, global_steps: int) -> None:
        """The step whose weights are loaded now; part of each request's seed."""
        self._step = int(global_steps)
        self._seen.clear()

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """End what runs at its next token; hold what comes."""
        await self._ready.abort(reject=reject_request)
        return {"aborted_count": 0, "request_ids": []}

    async def resume_generation(self) -> None:
        """Take requests again."""
        self._ready.resume()

    async def wait_for_requests_to_drain(self) -> None:
        """Return when no batch is running."""
        if self._batcher is not None:
            await self._batcher.exclusive(lambda: None)

    async def sleep(self) -> None:
        """Give the device's memory back, if there is a device."""
        await self._move("cpu")

    async def wake_up(self) -> None:
        """Bring the weights back to the device."""
        if self._backend is not None:
            await self._move(self._backend.device)

    async def _move(self, device: str) -> None:
        model = getattr(self._backend, "model", None)
        if self._batcher is not None and model is not None and self._backend.device != "cpu":
            await self._batcher.exclusive(lambda: model.to(device))

    async def clear_kv_cache(self) -> None:
        """No cache outlives a batch."""

    async def release_kv_cache(self) -> None:
        """No cache outlives a batch."""

    async def resume_kv_cache(self) -> None:
        """No cache outlives a batch."""

    async def start_profile(self, **_options: Any) -> None:
        """No profiler in this server."""

    async def stop_profile(self) -> None:
        """No profiler in this server."""
