"""The ``extra_info`` that a user's rows have already: kept, with one Arrow type for all rows of a file.

A reward function reads it by its keys, so none may be lost. The type is not known before the last row was
seen: what :class:`ExtraInfo` has seen so far is in ``kind``, and a file whose later rows have more is written
a second time with all of it (:mod:`harness.data.convert`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from harness.data.chunk import Chunk
from harness.data.refused import Refused

COLUMN = "extra_info"
_UNHELD = (
    "cannot be held in one Parquet column "
    "(a list of several kinds, an integer of more than 64 bits, or nested too deeply)"
)
# Arrow 25 writes 124 structs within each other, or 62 with lists between, and cannot read the file again:
# "Invalid flatbuffers message".
_DEEPEST = 100


class ExtraInfo:
    """Takes the column chunk by chunk; ``kind`` is the struct that holds all rows so far, if any."""

    def __init__(self, kind: Any = None) -> None:
        """Start from the ``pyarrow.StructType`` that an earlier pass over the same rows came to."""
        self.kind = kind
        self.kept = kind is not None
        """Whether there is anything of the user's to keep."""
        self._others = Refused()

    def take(self, chunk: Chunk, refused: Refused) -> Any:
        """The chunk's column as a ``pyarrow.StructArray``; none where it has no dictionary in it.

        A row that fits no common type is noted in ``refused``.
        """
        import pyarrow as pa

        values = self._dicts(chunk)
        if not any(values):
            return None if self.kind is None else pa.nulls(chunk.rows, self.kind)
        self.kept = True
        try:
            array = pa.array(values)
            self.kind = _merged(self.kind, _readable(array.type))
            return array if array.type == self.kind else pa.array(values, self.kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            refused.note(chunk, *_misfit(values, self.kind))
            return None

    def _dicts(self, chunk: Chunk) -> list[dict[str, Any] | None]:
        values = chunk.columns.get(COLUMN) or []
        if {type(value) for value in values} <= {dict, NoneType}:
            return values
        for row, value in enumerate(values):
            if value is not None and not isinstance(value, dict):
                what = f"is a {type(value).__name__}, and in other rows a dict"
                self._others.note(chunk, row, COLUMN, what)
        return [value if isinstance(value, dict) else None for value in values]

    def tell(self, refused: Refused) -> None:
        """Note rows with something else than a dictionary where others have one; all texts is not that."""
        if self.kept:
            refused.absorb(self._others)

    @property
    def left_out(self) -> bool:
        """Whether the column holds something of which nothing is kept; empty dictionaries are nothing."""
        return not self.kept and bool(self._others)


def with_own(theirs: Any, own: Mapping[str, Any]) -> Any:
    """Add arrays of ours to the user's ``pyarrow.StructArray`` where it has no such key or no value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = {}
    for field in theirs.type:
        array = _storable(pc.struct_field(theirs, field.name))
        ours = own.get(field.name)
        if ours is not None and pa.types.is_null(array.type):
            array = ours
        elif ours is not None and ours.type == array.type:
            array = pc.coalesce(array, ours)
        found[field.name] = array
    found |= {name: array for name, array in own.items() if name not in found}
    return pa.StructArray.from_arrays(list(found.values()), names=list(found))


def _storable(array: Any) -> Any:
    """The same, where an empty dictionary is null: Parquet has no struct without a field."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if "struct<>" not in str(kind):
        return array
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, _storable(array.values), mask=array.is_null())
    if not kind.num_fields:
        return pa.nulls(len(array))
    parts = [_storable(pc.struct_field(array, field.name)) for field in kind]
    return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=array.is_null())


def _merged(kind: Any, other: Any) -> Any:
    """One type for both; raises a ``pyarrow.ArrowException`` where there is none."""
    import pyarrow as pa

    if kind is None or kind == other:
        return other
    both = [pa.schema([(COLUMN, one)]) for one in (kind, other)]
    return pa.unify_schemas(both, promote_options="permissive").field(COLUMN).type


def _readable(kind: Any) -> Any:
    """``kind``; raises ``pyarrow.ArrowInvalid`` where a file with such a column could not be read again."""
    import pyarrow as pa

    depth, level = 0, [kind]
    while level:
        depth += 1
        level = [one.field(number).type for one in level for number in range(one.num_fields)]
    if depth > _DEEPEST:
        raise pa.ArrowInvalid(f"it is {depth} levels deep, and Arrow reads back no more than {_DEEPEST}")
    return kind


def _misfit(values: list[Any], kind: Any) -> tuple[int, str, str]:
    """The first row that no column holds, alone or with those before it; the column; what to say of it."""
    import pyarrow as pa

    for row, value in enumerate(values):
        try:
            alone = _readable(pa.array([value]).type)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            return row, COLUMN, f"{_UNHELD}: {_reason(error)}"
        try:
            kind = _merged(kind, alone) if value is not None else kind
        except pa.ArrowException as error:
            return row, COLUMN, f"does not fit the rows before it: {_reason(error)}"
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            return row, COLUMN, f"does not fit the other rows: {_reason(error)}"
    return 0, COLUMN, "and the rows after it have no common type"


def _reason(error: Exception) -> str:
    """Arrow's words: a clash is told for each struct on the way down, and the innermost is meant."""
    return str(error).splitlines()[0].rpartition("Unable to merge: ")[2]
