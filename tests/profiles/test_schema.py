"""The committed schema is the model's, and an editor that uses it sees what the loader sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from harness.profiles import names, schema
from harness.profiles.load import folder

FILES = sorted(path.name for path in folder().glob("*.yaml"))


def document(file: str) -> dict[str, Any]:
    loaded = yaml.safe_load((folder() / file).read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_the_committed_schema_is_current() -> None:
    assert schema.path().read_text(encoding="utf-8") == schema.text()


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema.document())


@pytest.mark.parametrize("file", FILES)
def test_each_file_names_and_fits_it(file: str) -> None:
    first = (folder() / file).read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# yaml-language-server: $schema={schema.FILE}"
    Draft202012Validator(schema.document()).validate(document(file))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("hardwear",), {}),
        (("hardware", "memory_gb"), 1),
        (("hardware", "accelerator"), "gpu"),
        (("run", "overrides", "trainer.device"), {"value": 1}),
        (("software", "targets"), [{"name": "linux"}]),
        (("numerics", "dtype"), "fp32"),
    ],
)
def test_an_editor_marks_the_mistake(path: tuple[str, ...], value: object) -> None:
    changed = json.loads(json.dumps(document("cpu.yaml")))
    node = changed
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = value
    assert list(Draft202012Validator(schema.document()).iter_errors(changed))


def test_all_profiles_are_covered() -> None:
    assert {f"{name}.yaml" for name in names()} < set(FILES)
