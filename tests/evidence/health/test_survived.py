"""What is said once and in passing becomes a finding; what is said of nothing does not."""

from __future__ import annotations

import pytest

from harness.evidence.health.survived import of_line

SAID = {
    # ray 2.55.1, on 16 MiB of /dev/shm
    "WARNING services.py:2248 -- WARNING: The object store is using /tmp/vl-7-x instead of /dev/shm because "
    "/dev/shm has only 16777216 bytes available. This will harm performance!": (
        "shared-memory-small",
        "16777216 bytes are free, and Ray keeps its objects in files of /tmp/vl-7-x",
    ),
    "(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other "
    "reasons at node (ID: ab, IP: 10.0.0.1)": ("memory-low", "1 of Ray's workers were killed"),
}


@pytest.mark.parametrize("line", SAID)
def test_a_sign_is_a_finding(line: str) -> None:
    id_, what = SAID[line]
    found = of_line(line, "ppo")
    assert found is not None
    assert (found.id, found.rung, found.step, found.failure_class) == (id_, "ppo", None, "resource")
    assert what in found.what


@pytest.mark.parametrize(
    "line",
    [
        "",
        "(TaskRunner pid=5) step:2 - critic/score/mean:0.1",
        "(raylet) object store is using /dev/shm",
        "INFO worker.py:2023 -- Started a local Ray instance.",
    ],
)
def test_other_lines_are_not(line: str) -> None:
    assert of_line(line, "ppo") is None
