"""Runs the phases of one role on fake tensors: the real modules, verl's own FSDP2 wrapping, and no memory.

Every rank does the same, so one is traced; the process group is torch's ``fake`` backend. The device is the
CPU, since a build without CUDA has no streams for FSDP2. The operations are those of a GPU, and so are their
sizes, where PyTorch's fused attention runs on both.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from harness.ladder.memory.live import Live
from harness.ladder.memory.settings import RoleSettings, RolloutSettings

# verl takes the log-probability row by row, so that what is in passing is one row. A trace of each row would
# take minutes; in this many pieces what is in passing is a sixty-fourth of the logits.
PIECES = 64


@dataclass(frozen=True, kw_only=True)
class RoleBytes:
    """Of one rank. All but ``shard`` come on top of the shard."""

    parameters: int
    """A count, not bytes: of the whole model, tied weights once."""
    full: int
    """The whole model's weights, unsharded."""
    largest: int
    """Its largest tensor."""
    shard: int
    """What the rank keeps of the weights."""
    pinned: int
    """The same in pinned host memory, where each tensor takes a power of two."""
    unit: int
    """The largest FSDP unit's shard: copied to the device while in use, where the weights are on the host."""
    infer: int = 0
    infer_entropy: int = 0
    train: int = 0
    """Forward and backward of a mini batch, gradients included."""
    gradients: int = 0


@dataclass(frozen=True, kw_only=True)
class RolloutBytes:
    """Of one rank: a whole model, and what generating takes on top."""

    weights: int
    generate: int
    cache: int
    """Keys and values at full length; a part of ``generate``."""


@contextmanager
def world(size: int) -> Iterator[Any]:
    """A process group of ``size`` ranks, of which this is the first and the only one; yields its mesh."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (size,), mesh_dim_names=("fsdp",))
    finally:
        dist.destroy_process_group()


def fake() -> AbstractContextManager[Any]:
    """Tensors without memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def role(config: Any, settings: RoleSettings, *, prompt: int, response: int, ranks: int) -> RoleBytes:
    """Trace what a training worker does in a step: inference, then a mini batch's update."""
    with world(ranks) as mesh, fake(), Live() as live:
        module = build(config, settings)
        count = sum(p.numel() for p in module.parameters())
        whole = [_size(p) for p in module.parameters()]
        shard(module, settings, mesh)
        local = [_size(p.to_local()) for p in module.parameters()]
        found = {
            "parameters": count,
            "full": sum(whole),
            "largest": max(whole),
            "shard": sum(local) + sum(_size(buffer) for buffer in module.buffers()),
            "pinned": sum(1 << (size - 1).bit_length() for size in local if size),
            "unit": _largest_unit(module),
        }
        length = prompt + response
        found["infer"] = _infer(module, settings, live, length, entropy=False)
        if settings.micro:
            if settings.kind == "language_model":
                found["infer_entropy"] = _infer(module, settings, live, length, entropy=True)
            found["train"], found["gradients"] = _train(module, settings, live, length)
    return RoleBytes(**found)


def build(config: Any, settings: RoleSettings) -> Any:
    """The module that verl's engine builds (transformer_impl.py, _build_module), with random weights."""
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

    dtype = getattr(torch, settings.dtypes.weights)
    if settings.kind == "language_model":
        module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    else:
        config = copy.deepcopy(config)
        config.num_labels, config.classifier_dropout = 1, 0.0
        module = AutoModelForTokenClassification.from_config(config, dtype=dtype)
    if settings.checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return module


def shard(module: Any, settings: RoleSettings, mesh: Any) -> None:
    """Shard it as verl does; the offload policy of the reference moves bytes, and is counted afterwards."""
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from verl.utils.fsdp_utils import apply_fsdp2

    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, settings.dtypes.compute),
        reduce_dtype=getattr(torch, settings.dtypes.reduce),
        cast_forward_inputs=True,
    )
    options = {
        "mesh": mesh,
        "mp_policy": policy,
        "offload_policy": None,
        "reshard_after_forward": settings.reshard,
    }
    apply_fsdp2(module, options, {})


def forward(module: Any, settings: RoleSettings, *, rows: int, length: int, entropy: bool) -> Any:
    """What ``FSDPEngineWithLMHead.forward_step`` computes without packed rows, all rows at full length."""
    from verl.utils.torch_functional import entropy_from_logits

    ids = torch.ones(rows, length, dtype=torch.long)
    # Rows of different lengths need the mask that transformers makes of theirs.
    mask = torch.ones(rows, 1, length, length, dtype=torch.bool)
    positions = torch.arange(length).expand(rows, length)
    with _autocast(settings):
        output = module(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        if settings.kind == "value_model":
            return output.logits.squeeze(-1)
        added = entropy_from_logits(output.logits) if entropy else None
        flat = torch.cat(list(output.logits.unbind()))
        probabilities = log_probs(flat, ids.reshape(-1))
        return probabilities if added is None else probabilities + added.reshape(-1)


def log_probs(logits: Any, labels: Any) -> Any:
    """As ``verl.utils.torch_functional.logprobs_from_logits_v2``, in pieces. ``(n, vocab)`` and ``(n,)``."""
    if logits.dtype in {torch.float32, torch.float64}:
        chosen = torch.gather(logits, dim=-1, index=labels.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.cat([torch.logsumexp(one, dim=-1) for one in logits.chunk(PIECES)])
    pairs = zip(logits.chunk(PIECES), labels.chunk(PIECES), strict=True)
    return torch.cat(
        [torch.log_softmax(one, dim=-1).gather(-1, label.unsqueeze(-1)).squeeze(-1) for one, label in pairs]
    )


def rollout(config: Any, settings: RolloutSettings, *, prompt: int, response: int) -> RolloutBytes:
    """Trace the ``hf`` rollout: its prompts by the block, then the last token with all keys and values."""
    from transformers import AutoModelForCausalLM, DynamicCache

    from harness.adapt.rollout import generator
    from harness.adapt.rollout.sampling import Sampling, choose

    width = max(generator.SMALLEST_WIDTH, generator.padded(prompt))
    bucket = max(generator.SMALLEST_BUCKET, generator.padded(prompt))
    last = bucket + response - 1
    rows, samplings = settings.rows, [Sampling(max_tokens=response)] * settings.rows
    with fake(), Live() as live, torch.inference_mode():
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, settings.dtype)).eval()
        block = generator.block(rows, sum(parameter.numel() for parameter in model.parameters()))
        weights = live.now
        with live.span() as span:

            def logits(cache: Any, count: int, size: int, first: int) -> Any:
                output = model(
                    input_ids=torch.ones(count, size, dtype=torch.long),
                    attention_mask=torch.ones(count, 1, size, first + size, dtype=torch.bool),
                    position_ids=torch.arange(first, first + size).expand(count, size),
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                return output.logits[:, -1].float()

            draws = torch.zeros((rows, response), dtype=torch.float64)
            cache = DynamicCache()
            logits(cache, block, width, 0)
            # At most as many distinct prompts as rows: all but the last block wait while that is read.
            _grow(cache, rows - block, width)
            logits(DynamicCache(), block, width, 0)
            _grow(cache, rows, last)
            choose(logits(cache, rows, 1, last), samplings, draws[:, -1])
            kept = sum(_size(one.keys) + _size(one.values) for one in cache.layers)
    return RolloutBytes(weights=weights, generate=span.above, cache=kept)


def _grow(cache: Any, rows: int, length: int) -> None:
    for one in cache.layers:
        _, heads, _, width = one.keys.shape
        one.keys = one.keys.new_empty(rows, heads, length, width)
        one.values = one.values.new_empty(rows, heads, length, width)


def _infer(module: Any, settings: RoleSettings, live: Live, length: int, *, entropy: bool) -> int:
    module.eval()
    with live.span() as span, torch.no_grad():
        forward(module, settings, rows=settings.infer, length=length, entropy=entropy)
    return span.above


def _train(module: Any, settings: RoleSettings, live: Live, length: int) -> tuple[int, int]:
    module.train()
    with live.span() as span, warnings.catch_warnings():
        # FSDP2 warns of in-place operations on what a value head returns; there are none here.
        warnings.filterwarnings("ignore", message=".*returned a view tensor", category=UserWarning)
        # The second micro batch meets the gradients of the first.
        for _ in range(1 + settings.accumulates):
            made = forward(module, settings, rows=settings.micro, length=length, entropy=settings.entropy)
            made.mean().backward()
            del made
    return span.above, sum(_size(p.grad.to_local()) for p in module.parameters() if p.grad is not None)


def _autocast(settings: RoleSettings) -> AbstractContextManager[Any]:
    if settings.dtypes.compute == "float32":
        return nullcontext()
    return torch.autocast(device_type="cpu", dtype=getattr(torch, settings.dtypes.compute))


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _largest_unit(module: Any) -> int:
    from torch.distributed.fsdp import FSDPModule

    units = [one for one in module.modules() if isinstance(one, FSDPModule)]
    owned = [set(one.parameters()) for one in units]
    # A unit has the parameters that no unit within it has.
    own = [mine - set().union(*(other for other in owned if other < mine)) for mine in owned]
    return max(sum(_size(p.to_local()) for p in group) for group in own)
