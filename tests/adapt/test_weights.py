"""Weights on their way: every bit arrives, and the digest sees each one that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch comes with the lock")

import torch

from harness.adapt.rollout.weights import Digest, buckets, pack, unpack

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]


def raw(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def of_bits(dtype: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Any bit pattern, NaNs with payloads and denormals among them; not for bool, where only 0 and 1 are."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    size = torch.empty((), dtype=dtype).element_size()
    count = torch.Size(shape).numel()
    noise = torch.randint(0, 256, (count * size,), generator=generator, dtype=torch.uint8)
    return noise.view(dtype).reshape(shape)


@settings(deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(1, 4), max_size=3).map(tuple),
    seed=st.integers(0, 2**31),
)
def test_every_bit_arrives(dtype: Any, shape: tuple[int, ...], seed: int) -> None:
    """0-dim and every dtype: a detour over float32 would round, and lose NaN's payload."""
    sent = of_bits(dtype, shape, seed)
    got = unpack(pack([("a.b", sent)]))["a.b"]
    assert (got.dtype, got.shape, raw(got)) == (sent.dtype, sent.shape, raw(sent))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda t: t.t(),
    "every second column": lambda t: t[:, ::2],
    "a row": lambda t: t[3],
    "broadcast": lambda t: t[:1].expand(5, -1),
    "needs a gradient": lambda t: t.clone().requires_grad_(),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_arrive_as_what_they_show(view: str, dtype: Any) -> None:
    """Tensors gathered by FSDP are often views: their storage is not their content."""
    sent = VIEWS[view](of_bits(torch.int64, (6, 8), 1).to(dtype))
    got = unpack(pack([("w", sent)]))["w"]
    assert got.shape == sent.shape
    assert raw(got) == raw(sent.detach())


def test_what_arrives_is_a_copy() -> None:
    sent = torch.ones(3)
    packed = pack([("w", sent)])
    got = unpack(packed)["w"]
    got += 1
    assert unpack(packed)["w"].tolist() == [1, 1, 1]
    assert sent.tolist() == [1, 1, 1]


@given(
    sizes=st.lists(st.integers(1, 40), max_size=20),
    limit=st.integers(1, 200),
)
def test_buckets_keep_order_and_size(sizes: list[int], limit: int) -> None:
    """One message for a whole model would need its memory twice; a lost tensor would train on old weights."""
    weights = [(f"w{n}", torch.zeros(size)) for n, size in enumerate(sizes)]
    found = list(buckets(iter(weights), limit))
    assert [name for bucket in found for name, _ in bucket] == [name for name, _ in weights]
    bytes_of = [[4 * tensor.numel() for _, tensor in bucket] for bucket in found]
    assert all(sum(bucket[:-1]) < limit for bucket in bytes_of)
    assert all(sum(bucket) >= limit for bucket in bytes_of[:-1])
    assert all(bytes_of)


def digest(tensors: dict[str, Any]) -> str:
    out = Digest()
    for name, tensor in tensors.items():
        out.add(name, tensor)
    return out.hexdigest()


def test_the_digest_does_not_depend_on_order() -> None:
    tensors = {f"layer.{n}": of_bits(torch.float32, (3, n + 1), n) for n in range(5)}
    assert digest(tensors) == digest(dict(reversed(tensors.items())))


@settings(deadline=None)
@given(
    place=st.integers(0, 63), bit=st.integers(0, 7), dtype=st.sampled_from([torch.float32, torch.bfloat16])
)
def test_one_flipped_bit_changes_the_digest(place: int, bit: int, dtype: Any) -> None:
    """Also the sign of a zero and the payload of a NaN, which ``==`` does not see."""
    sent = of_bits(torch.uint8, (64,), 3)
    other = sent.clone()
    other[place] ^= 1 << bit
    assert digest({"w": sent.view(dtype)}) != digest({"w": other.view(dtype)})


@pytest.mark.parametrize(
    "other",
    [
        {"w": torch.zeros(4)},
        {"v": torch.zeros(4), "x": torch.zeros(2)},
        {"v": torch.zeros(2), "w": torch.zeros(4)},
    ],
    ids=["one is missing", "another name", "swapped"],
)
def test_names_count(other: dict[str, Any]) -> None:
    assert digest({"v": torch.zeros(4), "w": torch.zeros(2)}) != digest(other)


def test_the_digest_counts_bytes() -> None:
    out = Digest()
    out.add("a", torch.zeros(3, dtype=torch.bfloat16))
    out.add("b", torch.zeros((), dtype=torch.float64))
    assert out.bytes == 14
