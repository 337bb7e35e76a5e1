"""Whether a line of a trainer's output says that it goes on. A run that stands still talks too.

verl's v1 trainer logs ``pending: 0, running: 8, finished: 0`` every minute while its samples wait for a
reward that never comes, and TransferQueue counts the polls of that waiting every five minutes: measured with
verl 0.9.1, a hang that spoke for ever and was never silent.
"""

from __future__ import annotations

import re
from collections import OrderedDict

# What differs between two lines that say the same: clocks, Ray's counter of equal lines, its waiting time.
_VARIES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?|\[repeated \d+x across cluster\]|\(autoscaler \+[\w]+\)"
)
# Counters of work that is done for the waiting itself (transfer_queue/utils/perf_utils.py).
_BOOKKEEPING = re.compile(r"\[Performance\] Total success|Per-operation statistics:")
_REMEMBERED = 256


class News:
    """Remembers what was said; a line is news when it differs from all of that in more than its clock."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._said: OrderedDict[str, None] = OrderedDict()

    def __call__(self, line: str) -> bool:
        """Take one line."""
        text = _VARIES.sub("", line).strip()
        if not text or _BOOKKEEPING.search(text):
            return False
        known = text in self._said
        self._said[text] = None
        self._said.move_to_end(text)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        return not known
