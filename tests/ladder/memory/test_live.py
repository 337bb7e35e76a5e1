"""Live bytes are counted from the operation that makes a storage until nothing holds it, fake or real."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.ladder.memory import trace
from harness.ladder.memory.live import Live

KIB = 1024


@pytest.mark.parametrize("mode", [nullcontext, FakeTensorMode], ids=["real", "fake"])
def test_what_is_made_counts_until_it_is_dropped(mode: Any) -> None:
    with mode(), Live() as live:
        first = torch.zeros(256)
        assert live.now == KIB
        with live.span() as span:
            view = first[1:].view(-1)
            second = first + 1
            assert live.now == 2 * KIB  # a view has no storage of its own
            del second
        assert (span.before, span.peak, span.after, span.above) == (KIB, 2 * KIB, KIB, KIB)
        del view, first
        assert live.now == 0


@pytest.mark.parametrize("mode", [nullcontext, FakeTensorMode], ids=["real", "fake"])
def test_what_autograd_keeps_is_alive(mode: Any) -> None:
    with mode(), Live() as live:
        weight = torch.zeros(256, requires_grad=True)
        out = weight.exp().exp().sum()
        kept = live.now
        assert kept >= 3 * KIB
        out.backward()
        del out
        assert live.now == 2 * KIB  # the weight and its gradient
        assert weight.grad is not None


def test_a_storage_that_is_made_empty_counts_no_more() -> None:
    """FSDP2 frees a gathered parameter this way, with no operation that a dispatch mode would see."""
    with Live() as live:
        gathered = torch.zeros(256)
        gathered.untyped_storage().resize_(0)
        assert live.now == 0
        gathered.untyped_storage().resize_(KIB)
        assert live.now == KIB
    assert torch.UntypedStorage.resize_.__name__ == "resize_"


def test_an_outer_span_sees_the_peak_of_an_inner_one() -> None:
    with Live() as live, live.span() as outer:
        with live.span() as inner:
            torch.zeros(256).exp()
        with live.span() as later:
            torch.zeros(2)
    assert inner.peak == outer.peak > later.peak


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_in_pieces_take_what_verls_rows_take(dtype: torch.dtype) -> None:
    """The shortcut of the trace against verl's own function, on real tensors, values and bytes."""
    from verl.utils.torch_functional import logprobs_from_logits_v2

    def measured(function: Any) -> tuple[torch.Tensor, torch.Tensor, int]:
        torch.manual_seed(0)
        with Live() as live:
            logits = torch.randn(512, 1000).to(dtype).requires_grad_()
            labels = torch.randint(0, 1000, (512,))
            with live.span() as span:
                made = function(logits, labels)
                made.float().sum().backward()
        assert logits.grad is not None
        return made.detach(), logits.grad, span.above

    ours, our_gradient, our_bytes = measured(trace.log_probs)
    theirs, their_gradient, their_bytes = measured(logprobs_from_logits_v2)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_gradient, their_gradient)
    assert our_bytes == pytest.approx(their_bytes, rel=0.03)
