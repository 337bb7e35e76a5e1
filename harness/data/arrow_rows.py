"""Converted rows as Arrow, in the columns of verl's own ``examples/data_preprocess/gsm8k.py``.

Built column by column: a table made from one dictionary a row took ten times as long.
"""

from __future__ import annotations

from typing import Any

from harness.data.extra_info import with_own
from harness.data.layouts import Rows

_WORKED = frozenset({"question", "answer"})


def schema(theirs: Any = None, *, solved: bool = True) -> Any:
    """Return the ``pyarrow.Schema`` of a converted file.

    ``theirs`` is the type of the user's own extra_info, where there is one; ``solved`` says that each row has
    a question and a worked answer to add to it.
    """
    import pyarrow as pa

    text = pa.string()
    own = {name: pa.nulls(0, kind) for name, kind in _own_kinds().items() if solved or name not in _WORKED}
    extra = (
        pa.struct(list(_own_kinds().items())) if theirs is None else with_own(pa.nulls(0, theirs), own).type
    )
    return pa.schema(
        [
            ("data_source", text),
            ("prompt", pa.list_(_message())),
            ("ability", text),
            ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", extra),
        ]
    )


def batch(rows: Rows, theirs: Any = None) -> Any:
    """Return one ``pyarrow.RecordBatch`` of :func:`schema`; ``theirs`` is the user's own extra_info."""
    import pyarrow as pa

    size, solved = len(rows.truths), rows.questions is not None
    kinds = schema(None if theirs is None else theirs.type, solved=solved)
    truths = pa.array(rows.truths, pa.string())
    own = {
        "split": _text(rows.split, size),
        "index": pa.array(range(rows.first, rows.first + size), pa.int64()),
        "question": _text(rows.questions, size),
        "answer": _text(rows.answers, size),
    }
    if theirs is None:
        extra = pa.StructArray.from_arrays(list(own.values()), fields=list(kinds.field("extra_info").type))
    else:
        extra = with_own(theirs, {k: own[k] for k in own if solved or k not in _WORKED})
    columns = [
        _text(rows.data_source, size),
        _prompts(rows.prompts, size),
        _text(rows.ability, size),
        pa.StructArray.from_arrays(
            [_text("rule", size), truths], fields=list(kinds.field("reward_model").type)
        ),
        extra,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=kinds)


def _own_kinds() -> dict[str, Any]:
    import pyarrow as pa

    return {"split": pa.string(), "index": pa.int64(), "question": pa.string(), "answer": pa.string()}


def _message() -> Any:
    import pyarrow as pa

    return pa.struct([("role", pa.string()), ("content", pa.string())])


def _prompts(prompts: Any, size: int) -> Any:
    import pyarrow as pa

    if prompts and isinstance(prompts[0], list):
        return pa.array(prompts, pa.list_(_message()))
    parts = [_text("user", size), pa.array(prompts, pa.string())]
    messages = pa.StructArray.from_arrays(parts, fields=list(_message()))
    return pa.ListArray.from_arrays(pa.array(range(size + 1), pa.int32()), messages)


def _text(values: Any, size: int) -> Any:
    import pyarrow as pa

    if isinstance(values, list):
        return pa.array(values, pa.string())
    return pa.nulls(size, pa.string()) if values is None else pa.repeat(pa.scalar(values, pa.string()), size)
