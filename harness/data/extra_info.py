"""The ``extra_info`` that a user's rows have already: kept, with one Arrow type for all rows of a file.

A reward function reads it by its keys, so none may be lost. The type is not known before the last row was
seen: what :class:`ExtraInfo` has seen so far is in ``kind``, and a file whose later rows have more is written
a second time with all of it (:mod:`harness.data.convert`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

from harness.data.chunk import Chunk
from harness.data.refused import Refused
from harness.errors import Problem

COLUMN = "extra_info"


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
            self.kind = _merged(self.kind, array.type)
            return array if array.type == self.kind else pa.array(values, self.kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            row, why = _misfit(values, self.kind)
            refused.note(chunk, row, COLUMN, f"does not fit the rows before it: {why}")
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

    def problems(self) -> Iterator[Problem]:
        """Rows with something else than a dictionary, where others have one; a column of texts is none."""
        if self.kept:
            yield from self._others.problems()


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


def _misfit(values: list[Any], kind: Any) -> tuple[int, str]:
    """The first row that has no common type with those before it, and Arrow's reason."""
    import pyarrow as pa

    for row, value in enumerate(values):
        try:
            kind = _merged(kind, pa.array([value]).type) if value is not None else kind
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            # Arrow says it for each struct on the way down; the innermost is the key in question.
            return row, str(error).splitlines()[0].rpartition("Unable to merge: ")[2]
    return 0, "its values have no common type"
