"""Random overrides, configurations and files: preflight says something about each, and never raises.

A few hundred here; tests/acceptance/test_issue_8_fuzz.py runs thousands with the same strategies.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.ladder import compose
from harness.ladder.preflight.command_line import TRAINER, parse
from harness.ladder.preflight.facts import Facts, Names
from harness.ladder.preflight.rules import evaluate
from harness.ladder.preflight.settings import Settings
from harness.ladder.preflight.shrink import changes
from harness.ladder.preflight.stand_ins import Stand, not_verified
from harness.ladder.preflight.static import inspect
from harness.profiles.load import load

# How many cases each property gets; a few where nothing is said.
EXAMPLES = int(os.environ.get("VERLOCK_FUZZ", "0"))
BASE = compose.compose_config(())
KEYS = sorted(compose.keys(BASE))
VALUES = st.one_of(
    st.integers(-3, 1 << 40).map(str),
    st.floats(allow_nan=True).map(str),
    st.sampled_from(
        ["null", "true", "False", "[]", "[1,a]", "{a: 1}", "'x y'", "???", "${data.seed}", "${gone}", ""]
    ),
    st.text(max_size=8),
)
WORDS = st.builds(
    "{}{}={}".format,
    st.sampled_from(["", "+", "++", "~"]),
    st.sampled_from(KEYS) | st.from_regex(r"[a-z_]{1,9}(\.[a-z_]{1,9}){0,3}", fullmatch=True),
    VALUES,
) | st.text(max_size=20)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def planted(key_values: list[tuple[str, Any]]) -> dict[str, Any]:
    """verl's own tree, with anything at some of its keys, sections too."""
    from omegaconf import OmegaConf

    config: Any = OmegaConf.to_container(BASE, resolve=False)
    for key, value in key_values:
        node = config
        *path, last = key.split(".")
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node[last] = value
    return dict(config)


@settings(max_examples=EXAMPLES or 200, deadline=None)
@given(key_values=st.lists(st.tuples(st.sampled_from(KEYS), ANYTHING), max_size=6))
def test_any_configuration_is_judged_and_shrunk(key_values: list[tuple[str, Any]]) -> None:
    config = planted(key_values)
    names = Names(estimators=frozenset({"gae"}), rollouts=frozenset({"vllm"}), loggers=frozenset({"console"}))
    findings = evaluate(config, Facts(names=names))
    assert all(finding.id and finding.what for finding in findings)
    s = Settings(config)
    stand = Stand(model="x/y", data="z", reward=None, prompt=10, rows=4)
    assert all(change.why for change in changes(s, stand, load("cpu"), steps=2))
    assert not_verified(s, stand)


@settings(max_examples=EXAMPLES or 15, deadline=None)
@given(words=st.lists(WORDS, max_size=4))
def test_any_words_are_inspected(words: list[str]) -> None:
    argv = ["python3", "-m", TRAINER, "actor_rollout_ref.model.path=x/y", *words]
    found = inspect(parse(argv, environ={}, folder=Path("/nonexistent")))
    assert found.findings, "there is no data file at least"
