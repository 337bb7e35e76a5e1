"""Which operations break a ban on a dtype, and where they are seen: every thread, backward, inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")

import torch

from harness.adapt.contract import violation
from harness.adapt.contract.dispatch import Counting
from harness.adapt.contract.dtypes import names_in
from harness.adapt.contract.ledger import Ledger
from harness.adapt.contract.terms import Terms
from harness.errors import ContractError
from harness.evidence import events
from harness.profiles import load

BF16, HALF = torch.bfloat16, torch.float16
F, ATEN = torch.nn.functional, torch.ops.aten


@pytest.fixture(autouse=True)
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("VERLOCK_EVENTS", str(path))
    violation.forget()
    yield path
    violation.forget()


def terms(mode: Any = "enforce", profile: str = "p40") -> Terms:
    return Terms.of(load(profile), mode)


def stored() -> Any:
    """Weights that were stored in bf16, as a checkpoint holds them: made outside of the contract."""
    return torch.arange(4.0).to(BF16)


def autocast(x: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        return F.linear(x, torch.eye(4))


FORBIDDEN: list[tuple[str, Callable[[Any], object]]] = [
    ("a cast", lambda x: x.to(BF16)),
    ("a cast to half", lambda x: x.half()),
    ("a copy into it", lambda x: torch.empty(4, dtype=BF16).copy_(x)),
    ("a fill", lambda x: torch.zeros(4, dtype=BF16)),
    ("arithmetic on what is stored in it", lambda x: stored_outside + stored_outside),
    ("a product", lambda x: stored_outside @ stored_outside),
    ("a list of tensors", lambda x: torch.cat([stored_outside, stored_outside])),
    ("a nested tensor", lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged).to(BF16)),
    ("autocast around a layer", autocast),
]
HARMLESS: list[tuple[str, Callable[[Any], object]]] = [
    ("fp32", lambda x: (x @ x).exp()),
    ("fp64", lambda x: x.double().sum()),
    ("a question about the dtype", lambda x: (torch.finfo(BF16).eps, BF16.itemsize, stored_outside.dtype)),
    ("an allocation", lambda x: torch.empty(4, dtype=BF16)),
    ("a view", lambda x: stored_outside.view(2, 2)[0]),
    ("reading what is stored in it", lambda x: stored_outside.float() + 1),
    ("copying it into fp32", lambda x: torch.empty(4).copy_(stored_outside)),
    ("a shape on the meta device", lambda x: torch.empty(4, dtype=BF16, device="meta") * 2),
]
stored_outside = stored()


@pytest.mark.parametrize("act", [act for _, act in FORBIDDEN], ids=[name for name, _ in FORBIDDEN])
def test_what_is_forbidden_raises_with_this_files_line(act: Callable[[Any], object]) -> None:
    with Counting(terms()), pytest.raises(ContractError) as caught:
        act(torch.ones(4))
    (problem,) = caught.value.problems
    assert problem.where is not None
    assert problem.where.startswith(f"{__file__}:")
    assert "p40-sm61" in problem.what
    assert caught.value.exit_code == 39


@pytest.mark.parametrize("act", [act for _, act in HARMLESS], ids=[name for name, _ in HARMLESS])
def test_what_is_harmless_passes(act: Callable[[Any], object]) -> None:
    with Counting(terms()) as mode:
        act(torch.ones(4))
    assert mode.forbidden == 0


def test_reading_stored_weights_is_counted_as_such() -> None:
    """A model stored in bf16 must be usable on a P40: it is converted once, when it is loaded."""
    with Counting(terms()) as mode:
        stored_outside.float()
    assert (mode.read, mode.forbidden) == (1, 0)


def test_what_a_profile_allows_passes() -> None:
    """The A100's dtype is bf16; fp16 is what it forbids."""
    with Counting(terms(profile="a100")) as mode:
        torch.ones(4).to(BF16).sum()
        with pytest.raises(ContractError, match="float16"):
            torch.ones(4).half()
    assert any("bfloat16" in names_in(bits) for bits, _ in mode.counts)


def test_recording_goes_on_and_counts_all(told: Path) -> None:
    with Counting(terms("record")) as mode:
        for _ in range(3):
            torch.ones(4).to(BF16).sum()
    assert mode.forbidden == 6
    (event,) = [e for e in events.read(told) if e["kind"] == violation.EVENT]
    assert (event["violation"], event["name"], event["mode"]) == ("dtype", "bfloat16", "record")
    assert event["where"].startswith(__file__)
    assert any("test_recording_goes_on_and_counts_all" in line for line in event["stack"])


def test_a_violation_is_told_even_if_its_error_is_swallowed(told: Path) -> None:
    with Counting(terms()):
        for _ in range(2):
            try:
                torch.ones(4).to(BF16)
            except Exception:  # noqa: BLE001 - as rewards and agent loops do
                continue
    assert [e["name"] for e in events.read(told) if e["kind"] == violation.EVENT] == ["bfloat16"]


def test_inference_mode_hides_nothing() -> None:
    """There the dispatcher shows a linear layer and an attention whole, not what they are made of."""
    x = torch.randn(1, 2, 8, 16)
    with Counting(terms()) as mode, torch.inference_mode():
        F.linear(x, torch.eye(16))
        F.scaled_dot_product_attention(x, x, x)
        with pytest.raises(ContractError), torch.autocast("cpu", dtype=BF16):
            F.linear(x, torch.eye(16))
    assert list(mode.kernels) == ["aten::_scaled_dot_product_flash_attention_for_cpu"]


class _Cast(torch.autograd.Function):
    """bf16 in the backward pass alone."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to(BF16).float()


def test_the_backward_pass_is_seen() -> None:
    with Counting(terms()):
        loss = _Cast.apply(torch.ones(4, requires_grad=True)).sum()
        with pytest.raises(ContractError):
            loss.backward()


def test_a_kernel_that_the_card_cannot_run() -> None:
    """On another GPU under the P40's contract, torch would choose it by itself."""
    q = torch.empty(1, 2, 8, 16, device="meta")
    with Counting(terms()), pytest.raises(ContractError, match=r"compute capability 8\.0"):
        ATEN._scaled_dot_product_flash_attention(q, q, q)
    with Counting(terms(profile="a100")) as mode:
        ATEN._scaled_dot_product_flash_attention(q, q, q)
    assert mode.kernels["aten::_scaled_dot_product_flash_attention"] == 1


def test_counting_changes_nothing_but_rounding() -> None:
    """Not even that between two counted runs."""

    def run() -> Any:
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        loss = layer(torch.randn(2, 5, 16)).square().mean()
        loss.backward()
        with torch.inference_mode():
            after = layer(torch.randn(2, 5, 16))
        return [loss.detach(), after, *(p.grad for p in layer.parameters())]

    plain = run()
    with Counting(terms()) as mode:
        counted, again = run(), run()
    torch.testing.assert_close(counted, plain, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(counted, again, strict=True))
    assert mode.counts.total() > 100


def test_every_thread_is_counted_and_those_from_before_are_named() -> None:
    import threading

    go = threading.Event()
    before = Thread(target=go.wait, name="from before")
    before.start()
    ledger = Ledger(terms(), None)
    ledger.start()
    try:
        seen: list[Exception] = []

        def work() -> None:
            torch.ones(4).sum()
            try:
                torch.ones(4).to(BF16)
            except ContractError as error:
                seen.append(error)

        first = ledger.document()["operations"]
        threads = [Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        document = ledger.document()
    finally:
        ledger.stop()
        go.set()
        before.join()
    assert len(seen) == 3
    assert document["operations"] - first == 3 * 4  # ones, sum, ones, and the cast
    assert document["forbidden"] == 3
    assert "from before" in document["threads_not_counted"]
    assert not [name for name in document["threads_not_counted"] if name.startswith("Thread-")]
    torch.ones(4).to(BF16)  # nothing is left of it
