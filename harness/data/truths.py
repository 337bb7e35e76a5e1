"""Ground truths that verl's own rule for GSM8K can never match: every reward is 0, and nothing says so.

The rule (verl 0.9.1, ``utils/reward_score/gsm8k.py``, chosen by ``data_source``) takes the text after
``####`` by ``-?[0-9.,]+``, drops commas, and asks whether it equals the ground truth as it is.
"""

from __future__ import annotations

from typing import Any

from harness.data import gsm8k, parquet_schema

_EXTRACTED = r"\A-?[0-9.]+\z"


def never_matched(sources: Any, truths: Any) -> Any:
    """A mask, true where the rule scores a row and the truth is no text that it extracts.

    Arrow arrays, one value a row. A null or an empty truth is another finding.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    scored = pc.equal(pc.cast(sources, "large_string"), gsm8k.DATA_SOURCE)
    if not parquet_schema.is_string(truths.type):
        return pc.and_(scored, pc.is_valid(truths))
    texts = pc.cast(truths, "large_string")
    number = pc.match_substring_regex(texts, _EXTRACTED)
    empty = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(texts)), 0)
    return pc.and_(scored, pc.invert(pc.or_(number, empty))) if len(texts) else pa.array([], pa.bool_())
