"""Prompts that repeat an earlier one, by 64 bits a row: one false pair in 37 million files of a million rows.

A row without a question repeats no other one: it is told as what it is, and has no hash.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from harness.data import parquet_schema
from harness.data.finding import Finding

_NO_HASH = 0
_TEXT_PARTS, _MESSAGES = "\x1f", "\x1e"


class Repeats:
    """Collects over batches."""

    def __init__(self) -> None:
        """Start with no row."""
        self._hashes = array("q")

    def add(self, prompts: Any, messages: Any, contents: Any, broken: Any) -> None:
        """Remember a batch's prompts; ``broken`` (bool, one a row) are rows without a question."""
        import numpy as np

        hashes = np.fromiter(_hashed(prompts, messages, contents), dtype=np.int64, count=len(prompts))
        self._hashes.frombytes(np.where(broken, _NO_HASH, hashes).tobytes())

    def findings(self, *, path: str, prompt_key: str) -> Iterator[Finding]:
        """One finding, with the first pair."""
        import numpy as np

        hashes = np.frombuffer(self._hashes, dtype=np.int64) if self._hashes else np.empty(0, np.int64)
        values, firsts, counts = np.unique(hashes, return_index=True, return_counts=True)
        counts[values == _NO_HASH] = 1
        again = int((counts - 1).sum())
        if again:
            row = int(firsts[counts > 1].min())
            other = int(np.flatnonzero(hashes == hashes[row])[1])
            yield Finding(
                id="data-duplicates",
                level="warning",
                key=f"{path}:row {row}, {other}:{prompt_key}",
                what=f"{again} of {np.count_nonzero(hashes != _NO_HASH)} prompts repeat an earlier one",
                why="they count several times in every epoch; in a validation file they bias the mean",
                todo="drop them, unless they are meant",
            )


def _hashed(prompts: Any, messages: Any, contents: Any) -> Iterator[int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not parquet_schema.is_string(contents.type):
        return (hash(str(value)) for value in prompts.to_pylist())
    parts = [pc.fill_null(pc.cast(a, "string"), "") for a in (pc.struct_field(messages, "role"), contents)]
    joined = pc.binary_join_element_wise(*parts, _TEXT_PARTS)
    counts = pc.fill_null(pc.cast(pc.list_value_length(prompts), "int64"), 0)
    offsets = pa.concat_arrays([pa.array([0], "int64"), pc.cumulative_sum(counts)])
    texts = pc.binary_join(pa.LargeListArray.from_arrays(offsets, joined), _MESSAGES)
    return map(hash, texts.to_pylist())
