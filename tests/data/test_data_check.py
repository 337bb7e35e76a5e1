"""`verlock data check`: every planted fault of meaning is named with its row, and a good file has none."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if importlib.util.find_spec("transformers") is None:
    pytest.skip("pyarrow and transformers come with the lock", allow_module_level=True)

import pyarrow as pa
import pyarrow.parquet as pq

from harness.adapt import verls
from harness.data import data_check, tiny_task, tiny_tokenizer
from harness.data.finding import faults

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]
TOKENIZER = tiny_tokenizer.make()
SWALLOWS = tiny_tokenizer.make()
SWALLOWS.chat_template = "{% for m in messages %}{{ m['text'] }}{% endfor %}"
REFUSES = tiny_tokenizer.make()
REFUSES.chat_template = (
    "{% if messages[0]['content'] == 'bad' %}{{ raise_exception('no') }}{% endif %}"
    "{{ messages[0]['content'] }}"
)
BARE = tiny_tokenizer.make()
BARE.chat_template = None


def write(path: Path, change: Callable[[list[Row]], None] = lambda rows: None, rows: int = 6) -> Path:
    made = [dict(row) for row in tiny_task.make(rows, seed=3, split="train")]
    for number, row in enumerate(made):
        row["prompt"] = [{"role": "user", "content": f"{number}: {row['prompt'][0]['content']}"}]
    change(made)
    pq.write_table(pa.Table.from_pylist(made), path)
    return path


def set_prompt(number: int, *messages: tuple[str, str]) -> Callable[[list[Row]], None]:
    def change(rows: list[Row]) -> None:
        rows[number]["prompt"] = [{"role": role, "content": content} for role, content in messages]

    return change


def set_model(rows: list[Row]) -> None:
    rows[5]["reward_model"] = {"style": "rule", "ground_truth": " "}


def no_style(rows: list[Row]) -> None:
    for row in rows:
        row["reward_model"] = {"ground_truth": "1"}


def no_extra(rows: list[Row]) -> None:
    for row in rows:
        del row["extra_info"]


def set_truth(number: int, truth: Any, source: str = "openai/gsm8k") -> Callable[[list[Row]], None]:
    def change(rows: list[Row]) -> None:
        for row in rows:
            row["data_source"] = source
            row["reward_model"] = {"style": "rule", "ground_truth": 1 if isinstance(truth, int) else "1"}
        rows[number]["reward_model"] = {"style": "rule", "ground_truth": truth}

    return change


def set_index(value: int | None) -> Callable[[list[Row]], None]:
    def change(rows: list[Row]) -> None:
        for row in rows:
            row["extra_info"] = {"index": value, "split": "train"}

    return change


def no_index(rows: list[Row]) -> None:
    for row in rows:
        row["extra_info"] = {"split": "train"}


# What is planted, the tokenizer, the finding's id and level, and the row that it names.
PLANTED = [
    pytest.param(set_prompt(2, ("user", " \n")), None, "data-empty-prompt", "fault", "row 2:", id="empty"),
    pytest.param(set_prompt(3, ("system", "x")), None, "data-no-user", "fault", "row 3:", id="no user"),
    pytest.param(
        set_prompt(1, ("human", "x"), ("user", "y")), None, "data-role", "warning", "row 1:prompt", id="role"
    ),
    pytest.param(
        set_prompt(4, ("user", "x" * 600)), TOKENIZER, "data-overlong", "fault", "row 4:", id="overlong"
    ),
    pytest.param(
        set_prompt(0, ("user", "x")), SWALLOWS, "data-question-lost", "fault", "row 0, 1, 2:", id="lost"
    ),
    pytest.param(set_prompt(4, ("user", "bad")), REFUSES, "data-refused", "fault", "row 4:", id="refused"),
    pytest.param(lambda rows: None, BARE, "model-no-template", "fault", "--model", id="no template"),
    pytest.param(
        lambda rows: rows.append(dict(rows[2])), None, "data-duplicates", "warning", "row 2, 6:", id="twice"
    ),
    pytest.param(set_model, None, "data-empty-truth", "warning", "row 5:", id="no truth"),
    pytest.param(no_style, None, "data-no-style", "warning", "reward_model.style", id="no style"),
    pytest.param(no_extra, None, "data-no-extra", "warning", "extra_info", id="no extra"),
    pytest.param(no_index, None, "data-no-extra", "warning", "extra_info.index", id="no index"),
    pytest.param(set_index(0), None, "data-no-extra", "warning", "extra_info.index", id="index 0"),
    pytest.param(set_index(None), None, "data-no-extra", "warning", "extra_info.index", id="index null"),
    pytest.param(
        set_truth(4, "It is #### 3"), None, "data-truth-never-matched", "warning", "row 4:", id="sentence"
    ),
    pytest.param(
        set_truth(4, "1,000"), None, "data-truth-never-matched", "warning", "row 4:", id="with a comma"
    ),
    pytest.param(set_truth(0, 3), None, "data-truth-never-matched", "warning", "row 0, 1, 2:", id="integer"),
]


@pytest.mark.parametrize(("change", "tokenizer", "kind", "level", "place"), PLANTED)
def test_a_planted_fault(
    tmp_path: Path, change: Callable[[list[Row]], None], tokenizer: Any, kind: str, level: str, place: str
) -> None:
    found = data_check.check(write(tmp_path / "a.parquet", change), tokenizer=tokenizer)
    mine = [finding for finding in found.findings if finding.id == kind]
    assert len(mine) == 1, found.findings
    assert mine[0].level == level
    assert place in mine[0].key
    # Nothing else is made of it.
    others = {finding.id for finding in faults(found.findings)} - {kind}
    assert not others, found.findings


TRUTHS = [
    "3",
    "-3",
    "3.5",
    "1,000",
    "$5",
    " 3",
    "3 ",
    "3\n",
    "It is #### 3",
    "x",
    "+3",
    "3.",
    "1/2",
    "\u0663",
]


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_truth_is_never_matched_where_verls_own_rule_gives_nothing_for_it(
    tmp_path: Path, truth: str
) -> None:
    rule = pytest.importorskip("verl.utils.reward_score", reason="verl comes with the lock")
    score = rule.default_compute_score("openai/gsm8k", f"So it is #### {truth}", truth)
    found = data_check.check(write(tmp_path / "a.parquet", set_truth(2, truth)))
    told = [finding.key for finding in found.findings if finding.id == "data-truth-never-matched"]
    assert bool(told) == (score == 0), score


@pytest.mark.parametrize("truth", ["It is #### 3", 3])
def test_truths_of_another_rule_are_its_own_business(tmp_path: Path, truth: Any) -> None:
    found = data_check.check(write(tmp_path / "a.parquet", set_truth(2, truth, "mine")))
    assert "data-truth-never-matched" not in {finding.id for finding in found.findings}


def test_truths_that_are_never_matched_and_unknown_roles_are_counted(tmp_path: Path) -> None:
    def change(rows: list[Row]) -> None:
        set_truth(0, 3)(rows)
        for number in (2, 5):
            rows[number]["prompt"] = [{"role": "robot", "content": "x"}, *rows[number]["prompt"]]

    found = {f.id: f for f in data_check.check(write(tmp_path / "a.parquet", change)).findings}
    assert found["data-truth-never-matched"].what.endswith("(and 3 more rows)")
    assert found["data-role"].what == "2 messages have the role 'robot'"
    assert "a.parquet:row 2:prompt" in found["data-role"].key


def test_a_good_file_has_no_finding_and_its_lengths_are_those_of_the_template(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", rows=3000)
    found = data_check.check(path, tokenizer=TOKENIZER)
    assert (found.findings, found.rows) == ((), 3000)
    prompts = pq.read_table(path).column("prompt").to_pylist()
    texts = [TOKENIZER.apply_chat_template(p, add_generation_prompt=True, tokenize=False) for p in prompts]
    sizes = [len(TOKENIZER(text, add_special_tokens=False)["input_ids"]) for text in texts]
    assert found.lengths is not None
    assert (found.lengths.shortest, found.lengths.longest) == (min(sizes), max(sizes))
    assert sizes[found.lengths.longest_row] == max(sizes)
    assert found.lengths.median == sorted(sizes)[(len(sizes) - 1) // 2]
    assert found.prompt == texts[0]


def test_broken_rows_are_no_duplicates_of_each_other(tmp_path: Path) -> None:
    def change(rows: list[Row]) -> None:
        rows += [dict(rows[2])]
        for number, prompt in enumerate([None, None, [], [], "empty", "empty", "system", "system"]):
            messages: Any = prompt
            if isinstance(prompt, str):
                role, content = ("user", " ") if prompt == "empty" else ("system", "s")
                messages = [{"role": role, "content": content}]
            rows.insert(number, dict(rows[-1]) | {"prompt": messages})

    found = data_check.check(write(tmp_path / "a.parquet", change))
    (twice,) = [finding for finding in found.findings if finding.id == "data-duplicates"]
    assert twice.what.startswith("1 of 7 prompts repeat")
    assert "row 10, 14:" in twice.key


def test_faults_of_form_and_of_meaning_are_told_together(tmp_path: Path) -> None:
    def change(rows: list[Row]) -> None:
        rows[1]["data_source"] = None
        set_prompt(2, ("user", ""))(rows)

    found = data_check.check(write(tmp_path / "a.parquet", change))
    assert {finding.id for finding in faults(found.findings)} == {"data-form", "data-empty-prompt"}


def test_a_long_prompt_is_a_finding_and_no_line_of_transformers(tmp_path: Path) -> None:
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    logging.getLogger("transformers").addHandler(handler)
    try:
        tokenizer = tiny_tokenizer.make()
        longer = set_prompt(4, ("user", "x" * (tokenizer.model_max_length + 1)))
        found = data_check.check(write(tmp_path / "a.parquet", longer), tokenizer=tokenizer)
        assert [finding.id for finding in found.findings] == ["data-overlong"]
        assert not said, said[0].getMessage()
        tokenizer("x" * (tokenizer.model_max_length + 1))
        assert said, "transformers would have said it"
    finally:
        logging.getLogger("transformers").removeHandler(handler)


def test_a_name_that_verl_refuses(tmp_path: Path) -> None:
    found = data_check.check(write(tmp_path / "rows.pq"))
    (finding,) = faults(found.findings)
    assert finding.id == "data-suffix"
    assert finding.todo == f"rename it: mv {tmp_path}/rows.pq {tmp_path}/rows.parquet"
    assert found.rows == 6, "and its rows were checked"


# The file, the release of verl, the id, what is said of the name.
OTHER_KINDS = [
    ("my rows.jsonl", "0.9.1", "file-not-checked", "verl 0.9.1 reads a .jsonl file"),
    ("my rows.json", "0.7.1", "file-not-checked", "verl 0.7.1 reads a .json file"),
    ("my rows.JSONL", "0.9.1", "data-suffix", "verl 0.9.1 reads no file that ends in .JSONL"),
    ("my rows.jsonl", "0.6.1", "data-suffix", "verl 0.6.1 reads no file that ends in .jsonl"),
    ("my rows.csv", "0.8.0", "data-suffix", "verl 0.8.0 reads no file that ends in .csv"),
]


@pytest.mark.parametrize(("name", "verl", "kind", "said"), OTHER_KINDS)
def test_another_kind_of_file_is_one_finding_with_the_command_that_converts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, verl: str, kind: str, said: str
) -> None:
    monkeypatch.setattr(data_check, "here", lambda: verl)
    path = tmp_path / name
    path.write_text('{"prompt": "q"}\n')
    (finding,) = data_check.check(path).findings
    assert (finding.id, finding.level) == (kind, "fault")
    assert finding.what.startswith(said)
    assert finding.todo == f"convert it: verlock data convert '{path}' '{tmp_path}/my rows.parquet'"


@pytest.mark.parametrize("ending", [".parquet", ".json", ".jsonl", ".csv", ".JSONL"])
def test_verls_own_class_reads_the_endings_that_are_said(tmp_path: Path, ending: str) -> None:
    if importlib.util.find_spec("verl") is None:
        pytest.skip("verl comes with the lock of an environment that trains")
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    path = tmp_path / f"rows{ending}"
    row = next(iter(tiny_task.make(1, seed=3, split="train")))
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        path.write_text(json.dumps(row) + "\n")
    config = OmegaConf.create({"cache_dir": str(tmp_path), "filter_overlong_prompts": False})
    if ending in verls.data_endings(verls.here()):
        assert len(RLHFDataset(data_files=str(path), tokenizer=TOKENIZER, config=config)) == 1
    else:
        with pytest.raises(ValueError, match="Unsupported file format"):
            RLHFDataset(data_files=str(path), tokenizer=TOKENIZER, config=config)


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "harness", "data", *map(str, words)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_ends_with_14_and_one_document(tmp_path: Path) -> None:
    good = command("check", write(tmp_path / "a.parquet"), "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["rows"] == 6
    bad = command("check", write(tmp_path / "b.parquet", set_prompt(2, ("user", ""))), "--json")
    assert bad.returncode == 14
    assert json.loads(bad.stdout)["findings"][0]["id"] == "data-empty-prompt"
    assert "Traceback" not in bad.stderr


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "x"]), "content": st.text(max_size=8)}),
    max_size=3,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "prompt": messages | st.none() | json_values,
            "data_source": st.text(max_size=5) | st.none(),
            "reward_model": st.fixed_dictionaries({"ground_truth": st.text(max_size=3) | st.none()})
            | json_values,
            "extra_info": json_values,
        },
    ),
    max_size=6,
)


@settings(max_examples=int(os.environ.get("VERLOCK_FUZZ", "100")), deadline=None)
@given(rows=ROWS, uniform=st.booleans())
def test_any_small_parquet_file_gets_findings_and_no_traceback(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], uniform: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.parquet"
    try:
        pq.write_table(pa.Table.from_pylist(rows * (2 if uniform else 1)), path)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):  # no Parquet file can hold these rows
        return
    found = data_check.check(path, tokenizer=TOKENIZER)
    assert found.rows or faults(found.findings)
