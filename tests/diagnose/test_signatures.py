"""Each signature knows its own excerpt, whole and spoilt; and the catalogue keeps its rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from harness.diagnose import catalogue, schema
from harness.diagnose.catalogue import Catalogue
from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.host import Host
from harness.errors import DiagnoseError

EXCERPTS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("excerpts.yaml").read_text(encoding="utf-8")
)
OURS = yaml.safe_load(catalogue.OURS.read_text(encoding="utf-8"))


def host_of(id_: str) -> Host | None:
    given = EXCERPTS[id_].get("host")
    return Host.model_validate(given) if given else None


def test_every_signature_has_an_excerpt(known: Catalogue) -> None:
    assert {signature.id for signature in known.signatures} == set(EXCERPTS)


def test_there_are_at_most_45(known: Catalogue) -> None:
    """The issue's limit for 92 reports: kinds of faults, not the words of one report."""
    assert len(known.signatures) <= 45


@pytest.mark.parametrize("id_", EXCERPTS)
def test_an_excerpt_is_known(told: Callable[..., Diagnosis], known: Catalogue, id_: str) -> None:
    answer = told(EXCERPTS[id_]["text"], host_of(id_))
    signature = next(s for s in known.signatures if s.id == id_)
    assert answer.signature == id_, answer
    assert (answer.failure_class, answer.scope) == (signature.failure_class, signature.scope)
    assert answer.fix
    assert "{" not in answer.cause, "a name in braces was not filled in"
    assert answer.raised.log_line is not None
    said = EXCERPTS[id_]["text"].splitlines()[answer.raised.log_line - 1]
    assert answer.raised.text.split("\n")[0].split(": ")[-1][:30] in said


def test_excerpts_are_the_same_once_spoilt(
    told: Callable[..., Diagnosis], spoil: Callable[[str], str]
) -> None:
    changed = {}
    for id_, excerpt in EXCERPTS.items():
        # A log has much before its end: whoever keeps only the last part keeps the excerpt.
        before = "(TaskRunner pid=4) Size of train dataloader: 8\n" * len(excerpt["text"].splitlines())
        answer = told(spoil(before + excerpt["text"]), host_of(id_))
        if answer.signature != id_:
            changed[id_] = (answer.signature, answer.raised.text)
    assert not changed


@pytest.mark.parametrize("id_", EXCERPTS)
def test_without_its_signature_an_excerpt_is_unknown_or_its_neighbours(known: Catalogue, id_: str) -> None:
    """The check that a signature does the work: taken away, its excerpt is not diagnosed as before."""
    from harness.diagnose.diagnose import diagnose_lines
    from harness.diagnose.lines import parse
    from harness.diagnose.match import Evidence

    (file,) = known.files
    rest = file.model_copy(update={"signatures": tuple(s for s in file.signatures if s.id != id_)})
    without = Catalogue(files=(rest,))
    answer = diagnose_lines(parse(EXCERPTS[id_]["text"]), without, Evidence(host=host_of(id_) or Host()))
    assert answer.signature != id_


def test_one_way_needs_nothing_of_another() -> None:
    """`given` belongs to the first patterns; each further way brings its own."""
    from harness.diagnose.diagnose import diagnose_lines
    from harness.diagnose.lines import parse
    from harness.diagnose.match import Evidence

    file = catalogue.check(
        {
            "signatures": [
                {
                    "id": "two-ways",
                    "class": "data",
                    "scope": "general",
                    "patterns": ["one thing"],
                    "given": {"log": "never said"},
                    "or_else": [{"patterns": ["another thing"], "given": {"log": "hint"}}],
                    "cause": "a thing of two ways",
                    "fix": "do the other thing",
                    "evidence": ["this test alone"],
                }
            ]
        },
        Path("two.yaml"),
    )
    known = Catalogue(files=(file,))

    def told(text: str) -> str:
        return diagnose_lines(parse(text), known, Evidence()).signature

    assert told("hint\nValueError: another thing") == "two-ways"
    assert told("hint\nValueError: one thing") == "unknown"
    assert told("ValueError: another thing") == "unknown"


def test_our_file_fits_the_committed_schema() -> None:
    document = json.loads(schema.path().read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    jsonschema.validate(OURS, document)


SPOILT: list[tuple[dict[str, Any], str]] = [
    ({"class": "confg"}, "class"),
    ({"patterns": ["(unclosed"]}, "not a regular expression"),
    ({"patterns": ["(?:abcd)*"]}, "matches an empty text"),
    ({"patterns": []}, "patterns"),
    ({"id": "unknown"}, "no signature matches"),
    ({"verl": ">>0.9"}, "verl"),
    ({"scope": "mine"}, "scope"),
    ({"fixx": "typo"}, "fixx"),
    ({"given": {"gpu": "none"}}, "gpu"),
]


@pytest.mark.parametrize(("change", "said"), SPOILT, ids=lambda value: str(value)[:30])
def test_a_spoilt_signature_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    item = {**OURS["signatures"][0], **change}
    with pytest.raises(DiagnoseError) as raised:
        catalogue.check({"signatures": [item]}, tmp_path / "mine.yaml")
    assert said in str(raised.value)
    assert "mine.yaml" in str(raised.value)


def test_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    item = OURS["signatures"][0]
    with pytest.raises(DiagnoseError, match="twice"):
        catalogue.check({"signatures": [item, item]}, tmp_path / "mine.yaml")
