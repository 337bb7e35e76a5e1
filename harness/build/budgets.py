"""Budgets: what a profile may cost, in a committed file, so that growth is a decision and not an accident."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from harness.build import files
from harness.errors import BudgetError, Problem
from harness.profiles import names, root
from harness.profiles.words import Model, Text

Bytes = Annotated[int, Field(gt=0)]


class LockBudget(Model):
    """For one lock of a profile."""

    download: Bytes
    disk: Bytes
    reason: Text


class ImageBudget(Model):
    """For the image's layers as a registry is sent them, packed with zstd."""

    archive: Bytes
    reason: Text


class Budget(Model):
    """For one profile."""

    locks: dict[Text, LockBudget]
    """By the lock target's name."""
    image: ImageBudget | None = None


def path() -> Path:
    """Where the budgets are kept."""
    return root() / "docker" / "budgets.yaml"


@cache
def load() -> dict[str, Budget]:
    """All budgets by profile.

    Raises:
        BudgetError: with every place where the file is wrong.
    """
    where = files.shown(path())
    try:
        given = yaml.safe_load(path().read_text(encoding="utf-8"))
        found = TypeAdapter(dict[str, Budget]).validate_python(given)
    except ValidationError as error:
        raise BudgetError(
            *(
                Problem(what=one["msg"], where=f"{where}:{'.'.join(map(str, one['loc']))}")
                for one in error.errors()
            )
        ) from None
    except (OSError, yaml.YAMLError) as error:
        raise BudgetError("cannot be read", where=where, why=str(error)) from None
    if strange := sorted(set(found) - set(names())):
        raise BudgetError(f"no such profile: {', '.join(strange)}", where=where)
    return found


def lock_problems(profile: str, target: str, *, download: int, disk: int) -> list[Problem]:
    """What a lock is over its budget. A lock without a budget is a problem too: it was forgotten."""
    budget = load().get(profile)
    limit = budget.locks.get(target) if budget else None
    where = f"{files.shown(path())}:{profile}.locks.{target}"
    if limit is None:
        return [Problem(what="no budget", where=where, todo="give it one, with its reason")]
    found = {"download": (download, limit.download), "disk": (disk, limit.disk)}
    return [
        _over(f"{what} of the {target} lock of {profile}", actual, allowed, f"{where}.{what}", limit.reason)
        for what, (actual, allowed) in found.items()
        if actual > allowed
    ]


def image_problems(profile: str, *, archive: int) -> list[Problem]:
    """What an image of ``archive`` packed bytes is over its budget; none where none was set."""
    budget = load().get(profile)
    limit = budget.image if budget else None
    if limit is None or archive <= limit.archive:
        return []
    where = f"{files.shown(path())}:{profile}.image.archive"
    return [_over(f"the image of {profile}", archive, limit.archive, where, limit.reason)]


def _over(what: str, actual: int, allowed: int, where: str, reason: str) -> Problem:
    return Problem(
        what=f"{what}: {actual / 1e6:.1f} MB, and the budget is {allowed / 1e6:.1f} MB",
        where=where,
        why=reason,
        todo="find what grew (`verlock plan` lists it), or raise the budget and say why",
    )
