"""The page is what the claims say, and each claim's test is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from harness.build import claims
from harness.errors import ProfileError, StaleError

ROOT = Path(__file__).parents[2]
CLAIMS = claims.read()
TESTS = [one.test for one in (*CLAIMS.claims, *CLAIMS.questions) if one.test]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("test", sorted(set(TESTS)))
def test_the_test_that_a_claim_names_is_there(test: str) -> None:
    file, _, function = test.partition("::")
    assert (ROOT / file).is_file()
    assert not function or function in functions(ROOT / file)


def test_every_test_of_this_folder_is_named_by_a_claim() -> None:
    here = {
        f"tests/claims/{path.name}::{name}"
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != Path(__file__).name
        for name in functions(path)
        if name.startswith("test_")
    }
    beside = {"tests/claims/test_scopes.py::test_each_error_has_its_class_and_its_own_code"}
    assert here - set(TESTS) == beside


def test_names_are_given_once() -> None:
    names = [one.id for one in (*CLAIMS.claims, *CLAIMS.questions)]
    assert len(names) == len(set(names))
    assert len(CLAIMS.questions) == 5


def test_the_page_is_current_and_a_change_makes_it_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claims.publish(check=True) == []
    page = claims.render(CLAIMS)
    for one in CLAIMS.claims:
        assert one.verdict in page
        assert one.claim.replace("|", "\\|") in page
    other = CLAIMS.model_copy(update={"checked": "2027-01-01"})
    monkeypatch.setattr(claims, "read", lambda: other)
    with pytest.raises(StaleError, match=r"docs/claims\.md"):
        claims.publish(check=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"verdict": "maybe"}, "verdict"),
        ({"test": None, "why": None}, "give a test, or why there is none"),
        ({"why": "both"}, "give a test, or why there is none"),
        ({"extra": "1"}, "extra"),
    ],
)
def test_a_claim_that_does_not_fit_is_named(change: dict[str, str | None], told: str, tmp_path: Path) -> None:
    document = yaml.safe_load((ROOT / claims.SOURCE).read_text(encoding="utf-8"))
    document["claims"][0] = {k: v for k, v in {**document["claims"][0], **change}.items() if v is not None}
    file = tmp_path / "claims.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(ProfileError, match=told):
        claims.read(file)
