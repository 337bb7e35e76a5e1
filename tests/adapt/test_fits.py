"""Patches judged on a verl that is only source: as on the installed one, and on a changed one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.adapt.fits import evaluate
from harness.adapt.patches import PATCHES
from harness.adapt.patches.engine import SEED

OURS = tuple(p for p in PATCHES if p.module.startswith("verl.") and not p.superfluous("0.9.1"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The modules that the patches rest on, as the locked verl has them."""
    spec = find_spec("verl")
    assert spec is not None
    assert spec.origin is not None
    for patch in OURS:
        part = Path(*patch.module.split(".")).with_suffix(".py")
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(spec.origin).parents[1] / part, tmp_path / part)
    return tmp_path


def file_of(source: Path, module: str) -> Path:
    return source.joinpath(*module.split(".")).with_suffix(".py")


def test_the_locked_verl_fits_also_when_it_is_only_read(source: Path) -> None:
    found = evaluate(source, "0.9.1", PATCHES)
    assert {one["patch"]: (one["fit"], one["in_versions"]) for one in found} == {
        patch.name: ("fit", True) for patch in OURS
    }


def test_another_version_is_said_to_be_outside(source: Path) -> None:
    assert {one["in_versions"] for one in evaluate(source, "7.0.0", PATCHES)} == {False}


@pytest.mark.parametrize("patch", OURS, ids=lambda patch: patch.name)
def test_a_changed_or_vanished_expression_is_unfit(source: Path, patch: object) -> None:
    path = file_of(source, patch.module)  # type: ignore[attr-defined]
    name = patch.anchor.target.rpartition(".")[2]  # type: ignore[attr-defined]
    path.write_text(path.read_text().replace(f"def {name}(", f"def {name}_moved("))
    (told,) = [one for one in evaluate(source, "0.9.1", PATCHES) if one["patch"] == patch.name]  # type: ignore[attr-defined]
    assert told["fit"] == "unfit"
    assert "gone" in told["difference"]


def test_the_process_of_its_own_imports_neither_verl_nor_torch(source: Path) -> None:
    file_of(source, SEED.module).unlink()
    code = "import runpy, sys; runpy.run_module('harness.adapt.fits', run_name='__main__'); "
    code += "sys.exit(bool({'torch', 'verl'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code, source, "0.9.1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    fits = {one["patch"]: one["fit"] for one in json.loads(done.stdout)}
    assert fits[SEED.name] == "unfit"
    assert "fit" in fits.values()
