"""The named patches: each fits the locked verl, says so when it does not, and names the difference."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import textwrap
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")
if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.adapt import names, patch
from harness.adapt.anchors import normalised
from harness.adapt.patches import PATCHES
from harness.adapt.settings import Settings
from harness.errors import PatchUnfitError
from harness.evidence import events

# verl warns of each engine that is not installed; the locked environment has none of them.
pytestmark = pytest.mark.filterwarnings("ignore:.* engine is not available:UserWarning")

BY_NAME = {found.name: found for found in PATCHES}
# Those for older releases are judged on their source: test_patches_older.py.
NOW = tuple(found.name for found in PATCHES if not found.superfluous(version("verl")))


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """What verl may become: ``changed`` so that nobody knows any more, or ``fixed``."""

    before: str
    changed: str
    fixed: str


UPSTREAM = {
    names.PROCESS_GROUP_BACKEND: Upstream(
        before="backend = backend or f'cpu:gloo,{get_device_name()}:{get_nccl_backend()}'",
        changed="backend = backend or f'cpu:gloo,{get_device_name()}:{collective_backend()}'",
        fixed="backend = backend or default_backend()",
    ),
    names.ENGINE_SEED: Upstream(
        before="self._build_model_optimizer()",
        changed="self._build_model_and_optimizer()",
        fixed="torch.manual_seed(self.engine_config.seed)\n    self._build_model_and_optimizer()",
    ),
    names.VALUE_HEAD_ATTENTION: Upstream(
        before="attn_implementation='flash_attention_2'",
        changed="attn_implementation=attention or 'flash_attention_2'",
        fixed="attn_implementation=model_config._attn_implementation",
    ),
    names.OFFLOAD_WITHOUT_PINNING: Upstream(
        before="CPUOffloadPolicy(pin_memory=True)",
        changed="CPUOffloadPolicy(mesh, pin_memory=True)",
        fixed="CPUOffloadPolicy(pin_memory=get_device_name() == 'cuda')",
    ),
    names.GLOO_AVERAGE: Upstream(
        before="group.allreduce([tensor], opts)",
        changed="group.allreduce_single(tensor, opts)",
        fixed="group.allreduce([tensor], opts, divide=op == ReduceOp.AVG)",
    ),
}
DEF_END = "):\n"
EACH = pytest.mark.parametrize("name", NOW)


def mutated(name: str, folder: Path, before: str, after: str) -> ModuleType:
    """A module of its own that holds the anchored function with its text changed."""
    anchored = BY_NAME[name]
    function = anchored.anchor.function(importlib.import_module(anchored.module))
    source = normalised(inspect.getsource(function))
    assert before in source, (
        f"patch {name}: the installed verl has no {before!r}, so this test changes nothing"
    )
    source = source.replace(before, after, 1 if before == DEF_END else -1)
    *owner, _ = anchored.anchor.target.split(".")
    if owner:
        source = f"class {owner[0]}:\n{textwrap.indent(source, '    ')}"
    file = folder / "mutated.py"
    file.write_text("from __future__ import annotations\n\n" + source + "\n")
    spec = importlib.util.spec_from_file_location(f"mutated_{abs(hash((name, after)))}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # What decorators and defaults of the function refer to.
    home = vars(importlib.import_module(function.__module__))
    vars(module).update({key: value for key, value in home.items() if not key.startswith("__")})
    spec.loader.exec_module(module)
    return module


def test_the_names_are_those_of_the_patches() -> None:
    """The command line checks ``--without-patch`` against the names, without importing verl."""
    assert set(BY_NAME) == set(names.PATCH_NAMES)
    assert set(UPSTREAM) == set(NOW), "a new patch needs a line in UPSTREAM"


@EACH
def test_each_fits_the_locked_verl(name: str) -> None:
    found = BY_NAME[name].evaluate(importlib.import_module(BY_NAME[name].module))
    assert found == ("applied", ""), f"patch {name}"


@EACH
def test_each_says_why_it_exists(name: str) -> None:
    found = BY_NAME[name]
    assert len(found.reason) > 20, f"patch {name}"
    assert len(found.evidence) > 20, f"patch {name}"


@EACH
def test_changed_code_is_unfit_with_the_difference(name: str, tmp_path: Path) -> None:
    """Applied to code that it was not made for, a patch would do anything at all."""
    upstream = UPSTREAM[name]
    outcome, difference = BY_NAME[name].evaluate(mutated(name, tmp_path, upstream.before, upstream.changed))
    assert outcome == "unfit", f"patch {name}"
    expected, found = difference.splitlines()[:2]
    assert expected == f"- {upstream.before}", f"patch {name}"
    assert found.startswith("+ "), f"patch {name}"
    assert upstream.changed.split("=", 1)[0].split("(")[0] in found, f"patch {name}: {found}"


@EACH
def test_a_fixed_verl_needs_no_patch(name: str, tmp_path: Path) -> None:
    upstream = UPSTREAM[name]
    found = BY_NAME[name].evaluate(mutated(name, tmp_path, upstream.before, upstream.fixed))
    assert found == ("not needed", ""), f"patch {name}"


@EACH
def test_a_verl_that_changed_elsewhere_keeps_the_patch(name: str, tmp_path: Path) -> None:
    """An anchor on the whole function would be unfit at each release, and people would leave it out."""
    module = mutated(name, tmp_path, DEF_END, f"{DEF_END}    import os\n")
    assert BY_NAME[name].evaluate(module)[0] == "applied", f"patch {name}"


@EACH
def test_a_function_that_is_gone_is_unfit(name: str) -> None:
    outcome, difference = BY_NAME[name].evaluate(ModuleType("renamed"))
    assert outcome == "unfit", f"patch {name}"
    assert f"- renamed.{BY_NAME[name].anchor.target}" in difference, f"patch {name}"
    assert "gone" in difference, f"patch {name}"


@EACH
@pytest.mark.parametrize(("field", "specifier"), [("verl", ">=99"), ("torch", "<1")])
def test_outside_its_versions_it_is_unfit(name: str, field: str, specifier: str) -> None:
    """The same words can mean something else in another version: someone has to look."""
    elsewhere = replace(BY_NAME[name], **{field: specifier})
    outcome, difference = elsewhere.evaluate(importlib.import_module(elsewhere.module))
    assert outcome == "unfit", f"patch {name}"
    assert f"- {field}{specifier}" in difference, f"patch {name}"
    assert f"+ {field}==" in difference, f"patch {name}"


# --- what a run makes of the outcome --------------------------------------------------------------------


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("VERLOCK_EVENTS", str(path))
    return path


@EACH
def test_an_unfit_patch_stops_the_run_and_is_recorded(name: str, tmp_path: Path, told: Path) -> None:
    upstream = UPSTREAM[name]
    module = mutated(name, tmp_path, upstream.before, upstream.changed)
    with pytest.raises(PatchUnfitError) as caught:
        BY_NAME[name].run(module, Settings())
    text = str(caught.value)
    assert f"--without-patch {name}" in text
    assert upstream.before in text
    (event,) = events.read(told)
    assert (event["kind"], event["patch"], event["outcome"]) == ("patch", name, "unfit")
    assert upstream.before in event["difference"]


@EACH
def test_a_patch_can_be_left_out_by_name_and_that_is_recorded(name: str, tmp_path: Path, told: Path) -> None:
    """For those who are changing verl itself; never in silence."""
    upstream = UPSTREAM[name]
    module = mutated(name, tmp_path, upstream.before, upstream.changed)
    assert BY_NAME[name].run(module, Settings(without_patches=frozenset({name}))) == "left out"
    assert [event["outcome"] for event in events.read(told)] == ["left out"]


def test_a_place_where_a_patch_acts_is_recorded_once(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "_acted", set())

    def patched() -> None:
        patch.acted("some-patch")

    for _ in range(3):
        patched()
    (event,) = events.read(told)
    assert (event["kind"], event["patch"]) == ("patch_acted", "some-patch")
    assert event["where"].startswith(__file__)


def test_comments_docstrings_and_quotes_are_no_change() -> None:
    """A docstring that mentions a seed must not pass for one that is set."""
    one = normalised("def f(x):\n    '''Seeds.'''\n    # why\n    return g('a',\n             x)\n")
    assert one == normalised('def f(x):\n    return g("a", x)  # because\n')
