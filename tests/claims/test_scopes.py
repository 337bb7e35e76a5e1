"""Which failures are local, and which are general: each error class says it."""

from __future__ import annotations

import pytest

from harness import errors

ALL = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, errors.VerlockError) and one is not errors.VerlockError
]
LOCAL = {
    "DiskFullError",
    "DoctorError",
    "EngineError",
    "InterruptedRunError",
    "RecordError",
    "ToolMissingError",
    "WrongMachineError",
}
GENERAL = {
    "DataError",
    "LockError",
    "ModelError",
    "OverrideError",
    "PatchUnfitError",
    "ProfileError",
    "TrainerError",
}


def test_each_error_says_whether_it_goes_away_on_the_target() -> None:
    scopes = {one.__name__: one.scope for one in ALL}
    assert {name for name, scope in scopes.items() if scope == "local-only"} >= LOCAL
    assert {name for name, scope in scopes.items() if scope == "general"} >= GENERAL


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.__name__)
def test_each_error_has_its_class_and_its_own_code(one: type[errors.VerlockError]) -> None:
    assert one.failure_class in {
        "config", "data", "model-logic", "backend", "distributed", "resource", "environment",
    }  # fmt: skip
    same = [other for other in ALL if other.exit_code == one.exit_code]
    assert all(issubclass(other, one) or issubclass(one, other) for other in same)
