"""`verlock data convert`: verl reads what comes out; what cannot be read is named by row and column."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if importlib.util.find_spec("datasets") is None:
    pytest.skip("pyarrow and datasets come with the lock", allow_module_level=True)

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from harness.data import data_check, gsm8k
from harness.data.convert import Converted, Wanted, convert
from harness.data.finding import faults
from harness.errors import DataError

PROBLEMS = [{"question": f"{n} and {n}?", "answer": f"Twice.\n#### {n * 1000:,}"} for n in range(1, 40)]
FLAT = [{"prompt": f'say "{n}",\nplease', "response": str(n), "reward": 1.0} for n in range(40)]


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def separated(path: Path, rows: list[dict[str, Any]]) -> Path:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return path


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def saved(path: Path, rows: list[dict[str, Any]]) -> Path:
    datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


def read(done: Converted) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(done.target).to_pylist()
    return rows


WRITERS = [
    (lines, "in.jsonl"),
    (separated, "in.csv"),
    (separated, "in.tsv"),
    (table, "in.parquet"),
    (saved, "in"),
]


@pytest.mark.parametrize(("write", "name"), WRITERS, ids=["jsonl", "csv", "tsv", "parquet", "saved"])
def test_gsm8k_from_every_format_becomes_what_verls_own_script_writes(
    tmp_path: Path, write: Any, name: str
) -> None:
    done = convert(write(tmp_path / name, PROBLEMS), tmp_path / "out.parquet", Wanted())
    assert (done.rows, done.layout, done.left_out) == (39, "gsm8k", ())
    rows = read(done)
    assert rows[2] == {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"3 and 3? {gsm8k.INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "3000"},
        "extra_info": {"split": "train", "index": 2, "question": "3 and 3?", "answer": "Twice.\n#### 3,000"},
    }
    assert not faults(data_check.check(done.target).findings)


@pytest.mark.parametrize(("write", "name"), WRITERS, ids=["jsonl", "csv", "tsv", "parquet", "saved"])
def test_the_flat_layout_becomes_messages_and_its_reward_is_left_out(
    tmp_path: Path, write: Any, name: str
) -> None:
    done = convert(write(tmp_path / name, FLAT), tmp_path / "out.parquet", Wanted(data_source="mine"))
    assert (done.rows, done.layout, done.left_out) == (40, "flat", ("reward",))
    row = read(done)[7]
    assert row["prompt"] == [{"role": "user", "content": 'say "7",\nplease'}]
    assert (row["data_source"], row["reward_model"]["ground_truth"]) == ("mine", "7")
    assert not faults(data_check.check(done.target).findings)


def test_rows_that_are_nearly_right_keep_their_messages(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    source = lines(
        tmp_path / "a.jsonl", [{"prompt": talk, "reward_model": {"ground_truth": 4.5}, "data_source": "d"}]
    )
    row = read(convert(source, tmp_path / "out.parquet", Wanted()))[0]
    assert (row["prompt"], row["reward_model"]["ground_truth"]) == (talk, "4.5")


def test_a_split_of_a_saved_data_set_must_be_chosen(tmp_path: Path) -> None:
    splits = {"train": datasets.Dataset.from_list(PROBLEMS), "test": datasets.Dataset.from_list(PROBLEMS[:3])}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "in"))
    with pytest.raises(DataError, match="several splits: train, test"):
        convert(tmp_path / "in", tmp_path / "out.parquet", Wanted())
    done = convert(tmp_path / "in", tmp_path / "out.parquet", Wanted(split="test"))
    assert (done.rows, read(done)[0]["extra_info"]["split"]) == (3, "test")


# File name, content, what is said.
BAD = [
    pytest.param(
        "a.jsonl",
        b'{"question": "q", "answer": "#### 1"}\n{"question"\n',
        ["a.jsonl:2", "not JSON"],
        id="json",
    ),
    pytest.param("a.jsonl", b"[1, 2]\n", ["JSON list", "jq"], id="json list"),
    pytest.param("a.jsonl", b'"x"\n', ["a.jsonl:1", "JSON str"], id="json text"),
    pytest.param("a.jsonl", b"null\n", ["a.jsonl:1: this line is null", "remove the line"], id="json null"),
    pytest.param(
        "a.jsonl", b"[" * 5000 + b"]" * 5000, ["a.jsonl:1: this line is nested too deeply"], id="deep"
    ),
    pytest.param("a.jsonl", b"", ["no rows"], id="nothing"),
    pytest.param(
        "a.jsonl",
        b'{"question": "q", "answer": "#### 1"}\n\n{"question": null, "answer": "#### x"}\n'
        b'{"question": "", "answer": 7}\n',
        [
            "row 1 (line 3):question",
            "null or empty",
            "row 1 (line 3):answer",
            "no '#### number'",
            "row 2 (line 4):question",
        ],
        id="several",
    ),
    pytest.param(
        "a.jsonl",
        b'{"prompt": ["x"], "response": "y"}\n',
        ["row 0 (line 1):prompt", "without role"],
        id="messages",
    ),
    pytest.param(
        "a.jsonl",
        b'{"prompt": "\\ud800", "response": "y"}\n',
        ["row 0 (line 1):prompt", "surrogate"],
        id="surrogate",
    ),
    pytest.param(
        "a.jsonl", b'{"foo": 1}\n', ["no question to be found", "the columns are foo"], id="columns"
    ),
    pytest.param(
        "a.csv", b"question,answer\na,#### 1\nb\n", ["row 1 (line 3)", "1 cells", "2 columns"], id="cells"
    ),
    pytest.param("a.csv", b"question,question\n", ["named twice"], id="names"),
    pytest.param("a.csv", b'prompt,response\n"a"b,c\n', ["a.csv:2", "not CSV"], id="quotes"),
    pytest.param("a.csv", b"prompt,response\n\xff,c\n", ["not UTF-8", "iconv"], id="encoding"),
    pytest.param("a.parquet", b"PAR1nonsense", ["truncated or damaged"], id="parquet"),
    pytest.param("a.xlsx", b"PK", ["'.xlsx' is not known"], id="suffix"),
]


@pytest.mark.parametrize(("name", "content", "said"), BAD)
def test_what_cannot_be_read_is_named_and_nothing_is_written(
    tmp_path: Path, name: str, content: bytes, said: list[str]
) -> None:
    source = tmp_path / name
    source.write_bytes(content)
    with pytest.raises(DataError) as caught:
        convert(source, tmp_path / "out" / "out.parquet", Wanted(data_source="d"))
    assert all(text in str(caught.value) for text in said), str(caught.value)
    assert not list((tmp_path / "out").iterdir())


def test_flat_rows_need_a_data_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--data-source"):
        convert(lines(tmp_path / "a.jsonl", FLAT), tmp_path / "out.parquet", Wanted())


def test_a_folder_that_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="save_to_disk"):
        convert(tmp_path, tmp_path / "out.parquet", Wanted())


def test_an_existing_file_is_kept_without_force_and_survives_a_failure_with_it(tmp_path: Path) -> None:
    good, bad = (
        lines(tmp_path / "a.jsonl", PROBLEMS),
        lines(tmp_path / "b.jsonl", [*PROBLEMS, {"question": "x"}]),
    )
    out = tmp_path / "out.parquet"
    out.write_bytes(b"mine")
    with pytest.raises(DataError, match="there already"):
        convert(good, out, Wanted())
    with pytest.raises(DataError, match="row 39"):
        convert(bad, out, Wanted(), force=True)
    assert out.read_bytes() == b"mine"
    convert(good, out, Wanted(), force=True)
    assert pq.read_metadata(out).num_rows == 39
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl", "out.parquet"]


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    source, out = lines(tmp_path / "a.jsonl", PROBLEMS), tmp_path / "out.parquet"
    with pytest.raises(DataError, match="there already"):
        convert(source, out, Wanted(), progress=lambda rows: out.write_text("another's") and None)
    assert out.read_text() == "another's"


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    source = lines(tmp_path / "a.jsonl", PROBLEMS)
    out = tmp_path / "out.parquet"
    import resource

    size = resource.getrlimit(resource.RLIMIT_FSIZE)
    pid = os.fork()
    if pid == 0:
        import signal

        from harness.errors import RecordError

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, size[1]))
        try:
            convert(source, out, Wanted())
        except RecordError:
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a forked child must not run on into pytest
            os._exit(2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


texts = st.text(max_size=12)


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_every_text_survives_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    source = lines(folder / "fuzz.jsonl", [{"prompt": p, "response": r} for p, r in pairs])
    try:
        done = convert(source, folder / "fuzz.parquet", Wanted(data_source="d"), force=True)
    except DataError:
        assert any(not text.strip() for pair in pairs for text in pair)
        return
    back = [(row["prompt"][0]["content"], row["reward_model"]["ground_truth"]) for row in read(done)]
    assert back == pairs


TALK = [{"role": "user", "content": "q"}]
VERLS = {
    "prompt": TALK,
    "data_source": "mine",
    "reward_model": {"style": "rule", "ground_truth": "1"},
    "ability": "code",
    "extra_info": {"index": 7, "tests": ["a", "b"], "limits": {"seconds": 2.5}},
}
OWN = {"index": 7, "who": "me", "split": "mine"}


def test_a_users_extra_info_and_ability_are_kept_and_not_called_left_out(tmp_path: Path) -> None:
    done = convert(
        lines(tmp_path / "a.jsonl", [VERLS | {"note": "x"}]), tmp_path / "out.parquet", Wanted(split="test")
    )
    assert (done.layout, done.left_out) == ("verl", ("note",))
    (row,) = read(done)
    assert row["ability"] == "code"
    assert row["extra_info"] == {**VERLS["extra_info"], "split": "test"}


@pytest.mark.parametrize(("write", "name"), [(lines, "in.jsonl"), (table, "in.parquet"), (saved, "in")])
def test_ours_is_added_to_extra_info_only_where_the_row_has_none(
    tmp_path: Path, write: Any, name: str
) -> None:
    rows = [
        {"question": "a?", "answer": "#### 1", "extra_info": OWN, "ability": "logic"},
        {"question": "b?", "answer": "#### 2", "extra_info": None, "ability": None},
        {"question": "c?", "answer": "#### 3", "extra_info": {"index": None, "who": "you"}, "ability": None},
    ]
    done = convert(write(tmp_path / name, rows), tmp_path / "out.parquet", Wanted())
    assert done.left_out == ()
    first, second, third = read(done)
    assert first["extra_info"] == OWN | {"question": "a?", "answer": "#### 1"}
    assert second["extra_info"] == {
        "index": 1,
        "who": None,
        "split": "train",
        "question": "b?",
        "answer": "#### 2",
    }
    assert (third["extra_info"]["index"], third["extra_info"]["who"]) == (2, "you")
    assert [row["ability"] for row in (first, second, third)] == ["logic", "math", "math"]
    assert not faults(data_check.check(done.target).findings)


def test_keys_that_only_later_rows_have_are_kept_and_the_file_is_still_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.data.text_files.ROWS", 4)
    told: list[int] = []
    extra: list[Any] = [{}] * 5 + [{"n": 1}] * 5 + [{"n": 0.5, "deep": {"empty": {}, "list": [{}]}}] * 5
    rows = [VERLS | {"extra_info": own} for own in extra]
    done = convert(
        lines(tmp_path / "a.jsonl", rows), tmp_path / "out.parquet", Wanted(), progress=told.append
    )
    assert told == [4, 8, 12, 15] * 2, "a second pass, chunk by chunk"
    found = [row["extra_info"] for row in read(done)]
    assert [own["n"] for own in found] == [None] * 5 + [1.0] * 5 + [0.5] * 5
    assert found[14]["deep"] == {"empty": None, "list": [None]}, "Parquet has no empty struct"
    assert found[14]["index"] == 14


CLASHES = [
    pytest.param([{"id": 1}, {"id": "x"}], "row 1 (line 2):extra_info", "str", id="key of two types"),
    pytest.param([{"id": 1}, "x"], "row 1 (line 2):extra_info", "is a str", id="not always a dict"),
    pytest.param([{"id": 1}, {"id": 1 << 70}], "row 1 (line 2):extra_info", "too large", id="large"),
]


@pytest.mark.parametrize("chunk", [1, 100])
@pytest.mark.parametrize(("extra", "place", "said"), CLASHES)
def test_extra_info_without_one_type_is_named_by_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: list[Any], place: str, said: str, chunk: int
) -> None:
    monkeypatch.setattr("harness.data.text_files.ROWS", chunk)
    source = lines(tmp_path / "a.jsonl", [VERLS | {"extra_info": own} for own in extra])
    with pytest.raises(DataError) as refused:
        convert(source, tmp_path / "out.parquet", Wanted())
    (problem,) = refused.value.problems
    assert place in str(problem.where)
    assert said in problem.what
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def nested(depth: int, *, lists: bool) -> dict[str, Any]:
    value: dict[str, Any] = {"a": 1}
    for _ in range(depth):
        value = {"a": [value] if lists else value}
    return value


@pytest.mark.parametrize(("depth", "lists"), [(96, False), (47, True)])
def test_what_is_nested_deeply_is_read_back(tmp_path: Path, depth: int, lists: bool) -> None:
    extra = nested(depth, lists=lists)
    (row,) = read(
        convert(
            lines(tmp_path / "a.jsonl", [VERLS | {"extra_info": extra}]), tmp_path / "out.parquet", Wanted()
        )
    )
    assert row["extra_info"]["a"] == extra["a"]


UNHELD = [
    pytest.param({"a": [1, "x"]}, "Could not convert 'x' with type str", id="mixed list"),
    pytest.param({"a": {"b": 1 << 63}}, "int too large", id="over 64 bits"),
    pytest.param(nested(200, lists=False), "levels deep", id="deep"),
    pytest.param(nested(50, lists=True), "levels deep", id="deep with lists"),
]


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(("extra", "reason"), UNHELD)
def test_a_value_that_no_column_holds_is_not_blamed_on_the_rows_before_it(
    tmp_path: Path, extra: dict[str, Any], reason: str, before: int
) -> None:
    rows = [*[VERLS] * before, VERLS | {"extra_info": extra}]
    said = said_of(lines(tmp_path / "a.jsonl", rows))
    assert f"row {before} (line {before + 1}):extra_info: extra_info cannot be held in one Parquet" in said
    assert reason in said
    assert "before it" not in said


@pytest.mark.parametrize("extra", [{}, None])
def test_an_extra_info_without_anything_in_it_is_not_called_left_out(tmp_path: Path, extra: Any) -> None:
    rows = [VERLS | {"extra_info": extra}] * 3
    assert convert(lines(tmp_path / "a.jsonl", rows), tmp_path / "out.parquet", Wanted()).left_out == ()


@pytest.mark.parametrize("chunk", [1, 100])
def test_what_is_wrong_is_told_in_the_order_of_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("harness.data.text_files.ROWS", chunk)
    source = tmp_path / "a.jsonl"
    good, bad_prompt, text, bad_truth = (
        json.dumps(VERLS | more)
        for more in ({}, {"prompt": 7}, {"extra_info": "x"}, {"reward_model": {"ground_truth": None}})
    )
    written = ["null", bad_truth, "{", good, text, bad_prompt]
    source.write_text("\n".join([*written, good]) + "\n")
    with pytest.raises(DataError) as refused:
        convert(source, tmp_path / "out.parquet", Wanted())
    places = [str(problem.where).removeprefix(f"{source}:") for problem in refused.value.problems]
    assert places == [
        "1",
        "row 1 (line 2):reward_model.ground_truth",
        "3:character 2",
        "row 4 (line 5):extra_info",
        "row 5 (line 6):prompt",
    ]


@pytest.mark.parametrize("value", ["NaN", "[1]"])
def test_a_missing_data_source_and_a_bad_first_answer_are_told_at_once(tmp_path: Path, value: str) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(f'{{"question": "a 1?", "answer": {value}}}\n')
    with pytest.raises(DataError) as refused:
        convert(source, tmp_path / "out.parquet", Wanted())
    first, second = refused.value.problems
    assert (first.what, "row 0 (line 1):answer" in str(second.where)) == ("no data_source", True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_texts_of_a_parquet_file_that_are_not_utf_8_are_named_by_their_rows(tmp_path: Path) -> None:
    raw = pa.array([b"ok", b"caf\xe9", b"\xff"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    pq.write_table(pa.table({"prompt": text, "response": ["a", "b", "c"]}), tmp_path / "a.parquet")
    assert "row 1:prompt: prompt is not UTF-8 (and in 1 more: row 2)" in said_of(tmp_path / "a.parquet")


def test_both_kinds_of_faults_of_extra_info_are_told_at_once(tmp_path: Path) -> None:
    rows = [VERLS | {"extra_info": own} for own in ({"deep": {"id": 1}}, {"deep": {"id": "x"}}, "text")]
    said = said_of(lines(tmp_path / "a.jsonl", rows))
    assert "row 1 (line 2):extra_info: extra_info does not fit the rows before it: Field id has" in said
    assert "row 2 (line 3):extra_info: extra_info is a str" in said


def test_a_column_extra_info_that_holds_no_dictionary_is_left_out_and_named(tmp_path: Path) -> None:
    rows = [{"question": "a 1?", "answer": "#### 1", "extra_info": "text"}]
    done = convert(separated(tmp_path / "a.csv", rows), tmp_path / "out.parquet", Wanted())
    assert done.left_out == ("extra_info",)
    assert read(done)[0]["extra_info"]["index"] == 0


# The row's other columns, the truth that is asked for, what is read as the truth, and what is left out.
TRUTHS = [
    pytest.param({"answer": "2"}, None, "1", ("answer",), id="verl's own column is read, the other is not"),
    pytest.param({"answer": "2"}, "answer", "2", ("reward_model",), id="--truth decides"),
    pytest.param({"data_source": "d"}, None, "1", (), id="nothing else"),
]


@pytest.mark.parametrize(("more", "truth", "read_as", "left"), TRUTHS)
def test_what_is_called_left_out_is_what_was_not_read(
    tmp_path: Path, more: dict[str, Any], truth: str | None, read_as: str, left: tuple[str, ...]
) -> None:
    done = convert(lines(tmp_path / "a.jsonl", [VERLS | more]), tmp_path / "out.parquet", Wanted(truth=truth))
    assert done.left_out == left
    assert read(done)[0]["reward_model"]["ground_truth"] == read_as


def said_of(source: Path) -> str:
    with pytest.raises(DataError) as caught:
        convert(source, source.with_name("out.parquet"), Wanted(data_source="d"))
    return str(caught.value)


def test_every_bad_row_of_a_csv_is_named_and_the_rest_counted(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    bad = [f"only{n}" for n in range(12)]
    source.write_text("\n".join(["prompt,response", "a,b", *bad, "", ",c", '"x"y,z', "d,e,f"]) + "\n")
    said = said_of(source)
    assert "a.csv:row 1 (line 3): 1 cells" in said
    others = ", ".join(f"row {n} (line {n + 2}) with 1 cells" for n in range(2, 11))
    assert f"(and in 12 more: {others} and 3 others)" in said
    # The row after them has its own number, and what is wrong in its cells is told as well.
    assert "a.csv:row 13 (line 16):prompt: prompt is null or empty" in said
    assert "a.csv:17: this line is not CSV" in said


def test_every_line_that_is_not_json_is_named_with_the_bad_values_of_the_others(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    good = '{"prompt": "a", "response": "b"}'
    source.write_text(f'{good}\n{{\n{good}\nx y\n{{"prompt": "", "response": "b"}}\n')
    said = said_of(source)
    assert "a.jsonl:2:character 2: this line is not JSON (and in 1 more: line 4)" in said
    assert "a.jsonl:row 4 (line 5):prompt" in said


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_lines_that_are_not_utf_8_are_named(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    row = b'{"prompt": "%s", "response": "b"}' if name == "a.jsonl" else b"%s,b"
    texts = [b"good", b"caf\xe9", "gr\u00fcn".encode(), b"\xff"]
    head = [] if name == "a.jsonl" else [b"prompt,response"]
    source.write_bytes(b"\n".join([*head, *(row % text for text in texts)]))
    second, fourth = (2, 4) if name == "a.jsonl" else (3, 5)
    said = said_of(source)
    assert f"{name}:{second}: this line is not UTF-8: byte 0xe9" in said
    assert f"(and in 1 more: line {fourth})" in said


def test_a_file_in_utf_16_is_called_so(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("prompt,response\na,b\n", encoding="utf-16")
    assert "the file is UTF-16" in said_of(source)


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_a_number_that_is_none_is_no_answer(tmp_path: Path, value: str) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text(f'{{"question": "a 1?", "answer": {value}}}\n')
    with pytest.raises(DataError) as refused:
        convert(source, tmp_path / "out.parquet", Wanted(data_source="mine"))
    (problem,) = refused.value.problems
    assert "which is no answer" in problem.what
    assert not (tmp_path / "out.parquet").exists()
