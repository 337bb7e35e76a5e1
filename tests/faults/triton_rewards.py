"""Planted: rewards that use Triton, by a launch, and by a kernel whose tiles fill 81920 bytes a block."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def double(x, n, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803
    place = tl.arange(0, BLOCK)
    tl.store(x + place, tl.load(x + place, mask=place < n) * 2, mask=place < n)


@triton.jit
def product(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # noqa: ANN001, ANN201, N803
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * BN + n[None, :])
        total += tl.dot(x, y)
    tl.store(c + m[:, None] * BN + n[None, :], total)


def launch(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    x = torch.ones(8)
    double[(1,)](x, 8, BLOCK=8)
    return float(x.sum())


def tiles(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    """(256 + 64) x 64 floats; compiling needs no GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    pointers = dict.fromkeys("abc", "*fp32") | {"K": "i32"}
    sizes = {"BM": 256, "BN": 64, "BK": 64}
    source = ASTSource(product, pointers | dict.fromkeys(sizes, "constexpr"), sizes)
    kernel = triton.compile(
        source, target=GPUTarget("cuda", 80, 32), options={"num_stages": 1, "num_warps": 8}
    )
    return float(kernel.metadata.shared)
