"""The patches of older releases, on those releases' own source; and the words, composed by their own tree.

The environments are made from the committed locks: seconds, where the wheels are in uv's cache.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.adapt import names
from harness.adapt.anchors import normalised
from harness.adapt.fits import evaluate
from harness.adapt.patches import PATCHES
from harness.build.environment import ensure
from harness.console import Output
from harness.profiles import load, releases, root

OLDER = ("0.8.0", "0.7.1")
BY_NAME = {patch.name: patch for patch in PATCHES}
Python = Callable[[str], Path]
EACH = pytest.mark.parametrize("verl", OLDER)


@pytest.fixture(scope="module")
def python() -> Python:
    """The interpreter of the environment with one of the older releases."""
    return lambda verl: ensure(load(releases.named("cpu", verl)), output=Output(as_json=True))


def site(python: Path) -> Path:
    return next(python.parents[1].glob("lib/python3.*/site-packages"))


@EACH
def test_every_patch_fits_that_release(python: Python, verl: str) -> None:
    found = evaluate(site(python(verl)), verl, PATCHES)
    assert {(one["fit"], one["in_versions"]) for one in found} == {("fit", True)}
    expected = {p.name for p in PATCHES if p.module.startswith("verl.") and not p.superfluous(verl)}
    assert {one["patch"] for one in found} == expected


# What each release has and a later one mended: name, release, the words, and what they became or may become.
MENDED = [
    (names.CPU_DEVICE, "0.8.0", "return getattr(torch, device_name)", "return get_platform().device_module"),
    (
        names.ENGINE_AUTOCAST,
        "0.7.1",
        "with torch.autocast(device_type=device_name, dtype=torch.bfloat16):",
        "with torch.autocast(device_type=device_name, dtype=self._autocast_dtype):",
    ),
    (
        names.WHOLE_WEIGHTS,
        "0.8.0",
        "full_tensor().to(torch.bfloat16, non_blocking=True)",
        "full_tensor()",
    ),
    (
        names.PADDING_FUNCTIONS,
        "0.8.0",
        "from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input",
        "try:\n            import flash_attn.bert_padding\n        except ImportError:\n            pass",
    ),
    (
        names.PADDED_MASK,
        "0.7.1",
        "[torch.ones_like(t, dtype=torch.int32) for t in loss_mask]",
        "build_attention_mask_from_nested(input_ids)",
    ),
]


@pytest.mark.parametrize(("name", "verl", "before", "after"), MENDED, ids=lambda value: str(value)[:24])
def test_changed_code_is_unfit_and_mended_code_needs_nothing(
    python: Python, name: str, verl: str, before: str, after: str
) -> None:
    patch = BY_NAME[name]
    path = site(python(verl)).joinpath(*patch.module.split(".")).with_suffix(".py")
    source = normalised(path.read_text(encoding="utf-8"))
    assert before in source
    assert patch.anchor.check_source(source, patch.module).fit == "fit"
    other = before.replace("(", "(None, ", 1).replace("import index", "import new_index")
    changed = patch.anchor.check_source(source.replace(before, other), patch.module)
    assert changed.fit == "unfit"
    assert f"- {before}" in changed.difference
    assert patch.anchor.check_source(source.replace(before, after), patch.module).fit == "not needed"


def test_each_patch_of_an_older_release_has_its_line_above() -> None:
    assert {name for name, *_ in MENDED} == {patch.name for patch in PATCHES if patch.until}


COMPOSE = """
import json, sys
from harness.errors import OverrideError
from harness.ladder.compose import compose_config
try:
    config = compose_config(json.load(sys.stdin))
    print(json.dumps({"critic": config.critic.strategy, "rollout": config.actor_rollout_ref.rollout.name}))
except OverrideError as error:
    print(json.dumps({"refused": [problem.where for problem in error.problems]}))
"""


def composed(python: Path, words: list[str]) -> dict[str, object]:
    """What the release's own configuration tree says to these words."""
    done = subprocess.run(
        [python, "-c", COMPOSE],
        input=json.dumps(words),
        env={"PYTHONPATH": str(root()), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@EACH
@pytest.mark.parametrize("algorithm", ["ppo", "dapo"])
def test_that_release_takes_every_word(python: Python, verl: str, algorithm: str) -> None:
    from tests.adapt.test_verls import rendered

    found = composed(python(verl), rendered(verl, algorithm, trainer="v0"))
    assert found == {"critic": "fsdp2" if verl == "0.8.0" else "fsdp", "rollout": "hf"}


@EACH
def test_that_release_refuses_the_words_of_the_newest(python: Python, verl: str) -> None:
    """The planted fault of the test above: without the table, these are what a climb would start with."""
    from tests.adapt.test_verls import rendered

    refused = composed(python(verl), rendered("0.9.1", "ppo", trainer="v1"))["refused"]
    assert isinstance(refused, list)
    assert {"trainer.use_v1", "actor_rollout_ref.rollout.seed"} <= set(refused)
    assert ("critic.fsdp.seed" in refused) is (verl == "0.7.1")
