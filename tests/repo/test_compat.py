"""The committed matrix: the page is that of its data, the README shows its rows, each release has a lock."""

from __future__ import annotations

import pytest

from harness.build.compat import NAMES, climbed
from harness.console import Output
from harness.errors import UnknownVerlError
from harness.evidence.matrix import Matrix, markdown, table
from harness.fingerprint import lock
from harness.profiles import load, releases, root

PLACES = [root() / "docs" / name for name in NAMES]
MATRIX = Matrix.model_validate_json(PLACES[0].read_text(encoding="utf-8"))


def test_the_page_is_the_one_that_its_data_make() -> None:
    assert PLACES[1].read_text(encoding="utf-8") == markdown(MATRIX)


def test_the_readme_shows_every_row() -> None:
    readme = (root() / "README.md").read_text(encoding="utf-8").splitlines()
    assert set(table(MATRIX)) <= set(readme)


def test_every_release_with_a_lock_is_in_it() -> None:
    assert [row.verl for row in MATRIX.rows] == list(releases.versions(load("cpu")))


def test_each_row_names_the_releases_lock() -> None:
    for row in MATRIX.rows:
        assert row.lock == lock.named(load(releases.named("cpu", row.verl)))["file"]


def test_two_older_releases_pass_the_real_trainer() -> None:
    older = [row.verl for row in MATRIX.rows if row.verl != load("cpu").software.verl]
    passed = [row.verl for row in MATRIX.rows if row.cells["ppo"].verdict == "passed"]
    assert len(set(older) & set(passed)) >= 2


def test_an_unknown_release_is_refused_before_anything_is_climbed() -> None:
    with pytest.raises(UnknownVerlError, match=r"0\.9\.1, 0\.8\.0, 0\.7\.1"):
        climbed("cpu", ["0.8.0", "0.5.0"], rungs=("env",), output=Output(as_json=True))
