"""Planted bad data files, each with the message that a user needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.data import parquet_check, tiny_task
from harness.errors import DataError

pa = pytest.importorskip("pyarrow", reason="pyarrow comes with the lock")
pq = pytest.importorskip("pyarrow.parquet")

Rows = list[dict[str, Any]]


def good(rows: int = 5) -> Rows:
    return [dict(row) for row in tiny_task.make(rows, seed=1, split="train")]


def without(*names: str) -> Rows:
    return [{key: value for key, value in row.items() if key not in names} for row in good()]


def changed(**values: Any) -> Rows:
    return [{**row, **values} for row in good()]


def write(path: Path, rows: Rows) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def message(path: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        parquet_check.check(path, **options)
    assert caught.value.exit_code == 14
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_good_file(tmp_path: Path) -> None:
    rows = good(3000)
    rows[2500]["prompt"] = [{"role": "system", "content": "s"}, {"role": "user", "content": "x" * 100}]
    found = parquet_check.check(write(tmp_path / "a.parquet", rows))
    assert found.rows == 3000
    assert found.first == tuple(rows[0]["prompt"])
    assert (found.longest_row, found.longest) == (2500, tuple(rows[2500]["prompt"]))
    assert found.data_sources == {"verlock/arithmetic": 3000}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            without("prompt"),
            ["no column 'prompt'; the columns are data_source, ability, reward_model, extra_info"],
        ),
        (
            [{"question": "1+1?", "answer": "#### 2"}],
            ["no column 'prompt'", "raw GSM8K", "no column 'data_source'"],
        ),
        (
            changed(prompt="1 + 1"),
            ["column 'prompt' is a string", "the question is lost", "examples/data_preprocess"],
        ),
        (changed(prompt=["1 + 1"]), ["a message is string, without role and content"]),
        (changed(prompt=[{"from": "u", "value": "x"}]), ["without role and content"]),
        (changed(prompt=[{"role": "user", "text": "x"}]), ["without content"]),
        (changed(prompt=7), ["column 'prompt' is int64, not a list of messages"]),
        (without("data_source"), ["no column 'data_source'"]),
        (changed(data_source=3), ["column 'data_source' is int64"]),
        (without("reward_model"), ["no column 'reward_model'", "KeyError"]),
        (changed(reward_model={"style": "rule"}), ["without ground_truth"]),
        (changed(reward_model="5"), ["column 'reward_model' is string, without ground_truth"]),
        (
            [{"prompt": "q", "response": "a", "reward": 1.0}],
            ["is a string", "'data_source'", "'reward_model'"],
        ),
    ],
)
def test_a_schema_that_verl_does_not_read(tmp_path: Path, rows: Rows, expected: list[str]) -> None:
    said = message(write(tmp_path / "bad.parquet", rows))
    for text in expected:
        assert text in said


def test_another_prompt_key(tmp_path: Path) -> None:
    rows = [{"messages": row.pop("prompt"), **row} for row in good()]
    path = write(tmp_path / "a.parquet", rows)
    assert parquet_check.check(path, prompt_key="messages").rows == 5
    assert "set data.prompt_key=messages" in message(path)


@pytest.mark.parametrize("kind", ["large", "dictionary", "fixed"])
def test_arrows_other_layouts_are_read(tmp_path: Path, kind: str) -> None:
    text = {
        "large": pa.large_string(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
        "fixed": pa.string(),
    }[kind]
    messages = pa.struct([("role", text), ("content", text if kind == "large" else pa.string())])
    prompts = {
        "large": pa.large_list(messages),
        "dictionary": pa.list_(messages),
        "fixed": pa.list_(messages, 1),
    }[kind]
    schema = pa.schema(
        [
            ("data_source", text),
            ("prompt", prompts),
            ("reward_model", pa.struct([("ground_truth", pa.string())])),
        ]
    )
    rows = [{key: row[key] for key in schema.names} for row in good()]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "a.parquet")
    assert parquet_check.check(tmp_path / "a.parquet").rows == 5


def test_bad_rows_are_named_and_counted(tmp_path: Path) -> None:
    rows = good(5000)
    rows[1]["prompt"] = []
    rows[2]["prompt"] = None
    rows[3]["prompt"] = [{"role": "user", "content": None}]
    for number in range(4000, 4010):
        rows[number]["reward_model"] = {"style": "rule", "ground_truth": None}
    rows[4999]["data_source"] = None
    said = message(write(tmp_path / "bad.parquet", rows))
    assert "row 1:prompt: prompt has no messages" in said
    assert "row 2:prompt: prompt is null" in said
    assert "row 3:prompt: prompt has a message without content" in said
    assert (
        "row 4000, 4001, 4002:reward_model.ground_truth: reward_model.ground_truth is null (and 7 more rows)"
        in said
    )
    assert "row 4999:data_source: data_source is null" in said


Arrays = dict[str, Any]


def latin(kind: str = "text") -> Any:
    """Three texts, of which the second is not UTF-8: Arrow does not look when it writes or reads them."""
    raw = pa.array([b"ok", b"caf\xe9", b"gr\xc3\xbcn"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), text) if kind == "dict" else text


def messages_of(**parts: Any) -> Any:
    plain = {"role": pa.array(["user"] * 3), "content": pa.array(["a", "b", "c"])} | parts
    return pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([*plain.values()], [*plain]))


def struct(**parts: Any) -> Any:
    return pa.StructArray.from_arrays([*parts.values()], [*parts])


# The columns that are changed, and the field that is named.
LATIN = [
    pytest.param({"data_source": latin()}, "data_source", id="data_source"),
    pytest.param({"data_source": latin("dict")}, "data_source", id="dictionary"),
    pytest.param({"prompt": messages_of(content=latin())}, "prompt.content", id="content"),
    pytest.param({"prompt": messages_of(role=latin())}, "prompt.role", id="role"),
    pytest.param(
        {"reward_model": struct(ground_truth=latin())}, "reward_model.ground_truth", id="ground truth"
    ),
    pytest.param({"note": latin()}, "note", id="a column of the user's"),
    pytest.param(
        {"extra_info": struct(index=pa.array([0, 1, 2]), answer=latin())}, "extra_info.answer", id="extra"
    ),
    pytest.param(
        {"m": pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["a", "b", "c"]), latin())}, "m", id="map"
    ),
    pytest.param({"f": pa.FixedSizeListArray.from_arrays(latin(), 1)}, "f", id="fixed list"),
    pytest.param(
        {"images": struct(bytes=pa.array([b"\xff"] * 3), path=latin())}, "images.path", id="beside bytes"
    ),
]


def stored(path: Path, columns: Arrays) -> Path:
    good_ones: Arrays = {
        "data_source": pa.array(["d"] * 3),
        "prompt": messages_of(),
        "reward_model": struct(ground_truth=pa.array(["1"] * 3)),
    }
    pq.write_table(pa.table(good_ones | columns), path)
    return path


@pytest.mark.parametrize(("columns", "name"), LATIN)
def test_a_text_that_is_not_utf_8_is_named_by_row_and_column(
    tmp_path: Path, columns: Arrays, name: str
) -> None:
    path = stored(tmp_path / "a.parquet", columns)
    with pytest.raises(UnicodeDecodeError):
        pq.read_table(path).to_pylist()
    with pytest.raises(DataError) as caught:
        parquet_check.check(path)
    (problem,) = caught.value.problems
    assert problem.where == f"{path}:row 1:{name}"
    assert problem.what == f"{name} is not UTF-8"


def test_bytes_that_are_meant_to_be_bytes_are_no_texts(tmp_path: Path) -> None:
    images = struct(bytes=pa.array([b"\xff"] * 3), path=pa.array(["a"] * 3))
    assert parquet_check.check(stored(tmp_path / "a.parquet", {"images": images})).rows == 3


def test_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    pq.write_table(pa.Table.from_pylist(good()).slice(0, 0), path)
    assert "the file has no rows" in message(path)


def _truncated(path: Path) -> None:
    write(path, good(500))
    path.write_bytes(path.read_bytes()[:-300])


def _damaged_pages(path: Path) -> None:
    write(path, good(500))
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 3] = bytes(len(data) // 3 - 4)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_truncated, "truncated or damaged"),
        (_damaged_pages, "damaged"),
        (lambda path: path.write_bytes(b""), "not a Parquet file"),
        (lambda path: path.write_text(json.dumps({"prompt": "x"})), "not a Parquet file"),
        (lambda path: path.mkdir(), "a folder, not a Parquet file"),
        (lambda path: None, "there is no such file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, make: Callable[[Path], Any], expected: str) -> None:
    path = tmp_path / "bad.parquet"
    make(path)
    assert expected in message(path)


def test_a_large_file_is_streamed(tmp_path: Path) -> None:
    """600 MB of text in 60 row groups, checked within 200 MB."""
    path = tmp_path / "large.parquet"
    (row,) = good(1)
    text = [
        {**row, "prompt": [{"role": "user", "content": f"{number} " + "x" * 10_000}]}
        for number in range(1000)
    ]
    table = pa.Table.from_pylist(text)
    with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
        for _ in range(60):
            writer.write_table(table)
    code = f"""
import resource
from pathlib import Path
import pyarrow.parquet, pyarrow.compute
from harness.data import parquet_check
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = parquet_check.check(Path({str(path)!r}))
print(found.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    rows, grown = map(int, done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert rows == 60_000
    assert grown * unit < 200 << 20
