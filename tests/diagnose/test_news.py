"""What a trainer that stands still says is told from what one says that goes on."""

from __future__ import annotations

import pytest

from harness.diagnose.news import News

# As verl 0.9.1's v1 trainer wrote them while a reward function hung; the clocks are the run's.
STANDING_STILL = [
    "(TaskRunnerV1 pid=7291) INFO:2026-11-30 15:51:30,832:pending: 0, running: 8, finished: 0, failure: 0",
    "(TaskRunnerV1 pid=7291) INFO:2026-11-30 15:52:30,851:pending: 0, running: 8, finished: 0, failure: 0",
    "(TQController pid=7322) 2026-11-30 15:55:25,897 [Performance] Total success requests: 569",
    "(TransferQueueController pid=7322) Time range: last 5.00 minutes; ",
    "(TransferQueueController pid=7322) Per-operation statistics: KV_LIST: req_count=5692, req/min=1.80",
    "(TaskRunnerV1 pid=7291) INFO:2026-11-30 15:55:30,935:pending: 0, running: 8, finished: 0, failure: 0",
    "(TQController pid=7322) 2026-11-30 16:00:25,932 [Performance] Total success requests: 5796",
    "(TransferQueueController pid=7322) Time range: last 5.00 minutes; ",
    "(TransferQueueController pid=7322) Per-operation statistics: KV_LIST: req_count=5796, req/min=1159.06",
    "",
    "(TaskRunnerV1 pid=7291) INFO:2026-11-30 16:02:31,106:pending: 0, running: 8, finished: 0, failure: 0",
]
WAITING_FOR_RESOURCES = [
    f"(autoscaler +{since}) Warning: cannot be scheduled right now: {{'CPU': 9.0}}."
    for since in ("12s", "47s", "1m22s", "10m")
]


@pytest.mark.parametrize(("lines", "news"), [(STANDING_STILL, 2), (WAITING_FOR_RESOURCES, 1)])
def test_standing_still_is_said_once(lines: list[str], news: int) -> None:
    """The first of each kind is news; none of the later ones is."""
    fresh = News()
    assert sum(map(fresh, lines)) == news
    assert not any(map(fresh, lines)), "and not the second time either"


GOING_ON = [
    "(TaskRunnerV1 pid=7291) INFO:2026-11-30 15:52:30,851:pending: 0, running: 7, finished: 1, failure: 0",
    "(TaskRunner pid=5) step:1 - critic/score/mean:0.1",
    "(TaskRunner pid=5) step:2 - critic/score/mean:0.1",
    "(TaskRunner pid=5) Training Progress:  25%|##5       | 1/4 [00:02<00:06,  2.1s/it]",
    "(WorkerDict pid=9) After FSDP, memory allocated (GB): 0.45",
    "(WorkerDict pid=10) After FSDP, memory allocated (GB): 0.45",
]


def test_what_goes_on_is_news() -> None:
    fresh = News()
    assert not fresh("")
    assert all(map(fresh, GOING_ON))


def test_it_does_not_remember_for_ever() -> None:
    fresh = News()
    assert all(fresh(f"line {number}") for number in range(1000))
    assert fresh("line 0"), "long ago, and kept memory would grow with the log"
