"""Writes rows as a Parquet file, whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.evidence.files import explain


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write ``rows`` and return ``path``; raises :class:`DiskFullError` or :class:`RecordError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows))
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, beside)
        beside.replace(path)
    except OSError as error:
        raise explain(error, path, what="write the data file") from error
    finally:
        if beside.parent.is_dir():
            beside.unlink(missing_ok=True)
    return path
