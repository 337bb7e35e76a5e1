"""Does a Parquet file's schema fit verl? Pure: a schema in, problems out.

What verl 0.9.1 reads: ``prompt`` as a list of chat messages (``utils/dataset/rl_dataset.py``,
``_build_messages``), ``data_source`` and ``reward_model.ground_truth`` (``experimental/reward_loop``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.data import file_kind
from harness.errors import Problem


def problems(schema: Any, *, path: str, prompt_key: str) -> list[Problem]:
    """Return everything about the ``pyarrow.Schema`` that verl would not read as meant."""
    found = [*_prompt(schema, path, prompt_key), *_data_source(schema, path), *_reward_model(schema, path)]
    return [problem for problem in found if problem is not None]


def _prompt(schema: Any, path: str, key: str) -> list[Problem | None]:
    where = f"{path}:{key}"
    if key not in schema.names:
        return [_no_prompt(list(schema.names), path, key)]
    kind = schema.field(key).type
    if is_string(kind):
        why = (
            "verl reads a list of chat messages; a string loads without an error, and then the question is "
            "lost when the chat template is applied: the model is trained on empty prompts"
        )
        return [Problem(what=f"column {key!r} is a string", where=where, why=why, todo=_convert(path))]
    if not is_list(kind):
        return [
            Problem(
                what=f"column {key!r} is {kind}, not a list of messages", where=where, todo=_convert(path)
            )
        ]
    return [_message(kind.value_type, path, where)]


def _no_prompt(names: list[str], path: str, key: str) -> Problem:
    what = f"no column {key!r}; the columns are {', '.join(names) or 'none'}"
    if {"question", "answer"} <= set(names):
        why = "this is the raw GSM8K layout, which verl cannot read"
        todo = f"{file_kind.convert(Path(path))} (or verl's examples/data_preprocess/gsm8k.py)"
        return Problem(what=what, where=path, why=why, todo=todo)
    similar = [name for name in names if name.lower() in {"prompt", "prompts", "messages", "conversations"}]
    todo = f"set data.prompt_key={similar[0]}" if similar else _convert(path)
    return Problem(what=what, where=path, why="verl takes the question from it", todo=todo)


def _message(kind: Any, path: str, where: str) -> Problem | None:
    fields = field_names(kind)
    missing = [name for name in ("role", "content") if name not in fields]
    if not missing:
        return None
    what = f"a message is {kind}, without {' and '.join(missing)}"
    return Problem(what=what, where=where, why="a chat template reads role and content", todo=_convert(path))


def _data_source(schema: Any, path: str) -> list[Problem | None]:
    where, why = f"{path}:data_source", "verl passes it to the reward function, to choose the rule"
    if "data_source" not in schema.names:
        todo = "add a column data_source, such as openai/gsm8k"
        return [Problem(what="no column 'data_source'", where=where, why=why, todo=todo)]
    kind = schema.field("data_source").type
    if is_string(kind):
        return [None]
    return [Problem(what=f"column 'data_source' is {kind}, not a string", where=where, why=why)]


def _reward_model(schema: Any, path: str) -> list[Problem | None]:
    where = f"{path}:reward_model.ground_truth"
    todo = 'add reward_model as {"style": "rule", "ground_truth": answer}'
    why = "verl's reward manager reads reward_model.ground_truth; the first step would end in a KeyError"
    if "reward_model" not in schema.names:
        return [Problem(what="no column 'reward_model'", where=where, why=why, todo=todo)]
    kind = schema.field("reward_model").type
    if "ground_truth" in field_names(kind):
        return [None]
    return [
        Problem(
            what=f"column 'reward_model' is {kind}, without ground_truth", where=where, why=why, todo=todo
        )
    ]


def _convert(path: str) -> str:
    messages = '[{"role": "user", "content": question}]'
    return (
        f"{file_kind.convert(Path(path))}; or write it as {messages}, as verl's examples/data_preprocess do"
    )


def is_string(kind: Any) -> bool:
    """Whether a ``pyarrow.DataType`` is text, in any of Arrow's layouts."""
    import pyarrow.types as t

    plain = kind.value_type if t.is_dictionary(kind) else kind
    return bool(t.is_string(plain) or t.is_large_string(plain) or t.is_string_view(plain))


def is_list(kind: Any) -> bool:
    """Whether a ``pyarrow.DataType`` is a list, in any of Arrow's layouts that verl's reader takes."""
    import pyarrow.types as t

    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind))


def field_names(kind: Any) -> list[str]:
    """Return the names of a struct's fields; none for another type."""
    import pyarrow.types as t

    return [kind.field(number).name for number in range(kind.num_fields)] if t.is_struct(kind) else []
