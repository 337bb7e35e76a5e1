"""Issue 8: 10,000 random profiles, configurations, overrides and Parquet files: no traceback, no hang.

The strategies are those of the tests that every change passes; here each runs far longer. hypothesis stops a
case that raises; a case that does not end is ended by the time limit of its test.
"""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import ProfileError
from harness.profiles.load import load_file
from harness.profiles.model import Profile

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
SECONDS = 3600


@pytest.fixture(autouse=True)
def _time_limit() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TimeoutError(f"a case did not end: {SECONDS} s for the test")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)


def module(path: str) -> ModuleType:
    """A test module of tier A, for its strategies and checks."""
    file = ROOT / "tests" / path
    spec = importlib.util.spec_from_file_location(f"fuzz_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, int], Any]:
    """The same property of tier A with more examples: a test takes its settings once, when it is defined."""

    def make(path: str, name: str, examples: int) -> Any:
        monkeypatch.setenv("VERLOCK_FUZZ", str(examples))
        test = getattr(module(path), name)
        checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
        test._hypothesis_internal_use_settings = settings(
            test._hypothesis_internal_use_settings, suppress_health_check=checks
        )
        assert test._hypothesis_internal_use_settings.max_examples == examples
        return test

    return make


def test_4000_configurations_are_judged_and_shrunk(longer: Any) -> None:
    longer("ladder/test_preflight_fuzz.py", "test_any_configuration_is_judged_and_shrunk", 4000)()


def test_500_command_lines_are_inspected(longer: Any) -> None:
    longer("ladder/test_preflight_fuzz.py", "test_any_words_are_inspected", 500)()


def test_2500_parquet_files_are_checked(longer: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    name = "test_any_small_parquet_file_gets_findings_and_no_traceback"
    longer("data/test_data_check.py", name, 2500)(tmp_path_factory)


KEYS = sorted(Profile.model_fields)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=10,
)


def test_3000_profiles_load_or_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.yaml"
    real = yaml.safe_load((ROOT / "profiles" / "cpu.yaml").read_text())
    real["extends"] = str(ROOT / "profiles" / real["extends"])

    @settings(max_examples=3000, deadline=None)
    @given(
        changed=st.dictionaries(st.sampled_from(sorted(real)) | st.sampled_from(KEYS), VALUES, max_size=4),
        raw=st.text(),
    )
    def check(changed: dict[str, Any], raw: str) -> None:
        text = yaml.safe_dump({**real, **changed}) if changed else raw
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        said = told(path)
        assert all(said)

    check()


def told(path: Path) -> list[str]:
    """What is wrong with a profile, problem by problem; nothing where it loads."""
    try:
        load_file(path)
    except ProfileError as error:
        return [problem.what for problem in error.problems] or [""]
    return []
