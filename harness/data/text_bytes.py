"""Texts of a Parquet file that are not UTF-8: Arrow reads them unseen, and the first use of one raises.

A batch that has one goes on with U+FFFD in its place, so that the rest of what is wrong is found as well.
"""

from __future__ import annotations

from typing import Any

from harness.data import parquet_schema


def leaves(schema: Any) -> list[str]:
    """The paths of a ``pyarrow.parquet.ParquetSchema`` that are text; images are bytes, and are not."""
    columns = (schema.column(number) for number in range(len(schema)))
    return [column.path for column in columns if column.logical_type.type in {"STRING", "ENUM", "JSON"}]


def mended(batch: Any) -> tuple[Any, dict[str, list[int]]]:
    """A ``pyarrow.RecordBatch`` whose texts are all UTF-8, and the rows of each text field that were not.

    A good batch is looked at by Arrow alone; a bad one value by value.
    """
    import pyarrow as pa

    bad: dict[str, list[int]] = {}
    for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            batch = batch.set_column(number, name, _mended(name, column, bad))
    return batch, bad


def _mended(name: str, column: Any, bad: dict[str, list[int]]) -> Any:
    import pyarrow as pa

    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    values = []
    for row, raw in enumerate(column.cast(_raw(column.type)).to_pylist()):
        broken: dict[str, None] = {}
        values.append(_decoded(raw, column.type, name, broken))
        for path in broken:
            bad.setdefault(path, []).append(row)
    return pa.array(values, column.type)


def _raw(kind: Any) -> Any:
    """The same ``pyarrow.DataType`` with bytes for texts."""
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_dictionary(kind):
        return _raw(kind.value_type)
    if t.is_struct(kind):
        return pa.struct([(field.name, _raw(field.type)) for field in kind])
    if t.is_map(kind):
        return pa.map_(_raw(kind.key_type), _raw(kind.item_type))
    if t.is_fixed_size_list(kind):
        return pa.list_(_raw(kind.value_type), kind.list_size)
    if t.is_list(kind) or t.is_large_list(kind):
        return (pa.large_list if t.is_large_list(kind) else pa.list_)(_raw(kind.value_type))
    return pa.large_binary() if parquet_schema.is_string(kind) else kind


def _decoded(value: Any, kind: Any, path: str, broken: dict[str, None]) -> Any:
    """``value`` with texts for bytes; the paths of those that are none are added to ``broken``."""
    import pyarrow.types as t

    if value is None:
        return None
    if parquet_schema.is_string(kind):
        try:
            return value.decode()
        except UnicodeDecodeError:
            broken[path] = None
            return value.decode(errors="replace")
    if t.is_struct(kind):
        return {f.name: _decoded(value[f.name], f.type, f"{path}.{f.name}", broken) for f in kind}
    if t.is_map(kind):
        return [
            (_decoded(key, kind.key_type, path, broken), _decoded(item, kind.item_type, path, broken))
            for key, item in value
        ]
    items = value if parquet_schema.is_list(kind) else ()
    return [_decoded(item, kind.value_type, path, broken) for item in items] if items else value
