"""``verlock plan``: what a profile's locks cost, by package, before anything happens."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from harness.build import budgets, files, lockfile, sizes
from harness.build.lock import folder
from harness.console import Output
from harness.errors import BudgetError, LockError, Problem
from harness.profiles import Profile, load

_SHOWN = 15  # packages; they are nine tenths of every lock


def plan(name: str, *, check: bool, output: Output) -> None:
    """Report the sizes of a profile's locks.

    Args:
        name: the profile.
        check: fail where a budget is exceeded.
        output: where the report goes.

    Raises:
        LockError: no lock, or a package whose size cannot be told.
        BudgetError: with ``check``, one problem for each budget exceeded.
    """
    profile = load(name)
    started = time.monotonic()
    targets: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for target in profile.software.targets:
        found = sizes.measure(profile, target, _pins(profile, target.file).values())
        download, disk = sum(one.download for one in found), sum(one.disk for one in found)
        problems += budgets.lock_problems(profile.stem, target.name, download=download, disk=disk)
        targets.append(
            {
                "name": target.name,
                "platform": target.python_platform,
                "download": download,
                "disk": disk,
                "packages": [asdict(one) for one in found],
            }
        )
    if check and problems:
        raise BudgetError(*problems)
    document = {
        "profile": profile.name,
        "targets": targets,
        "seconds": round(time.monotonic() - started, 2),
        "over_budget": [problem.what for problem in problems],
    }
    output.result(document, lambda: _print(document, output))


def _pins(profile: Profile, file: str) -> dict[str, lockfile.Pin]:
    path = folder(profile) / file
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LockError("there is no lock", where=files.shown(path), todo="make it: `verlock lock`") from None
    return lockfile.parse(text, file=files.shown(path))


def _print(document: dict[str, Any], output: Output) -> None:
    for target in document["targets"]:
        packages = target["packages"]
        output.line(f"{document['profile']}, {target['name']} ({target['platform']}), in MB:")
        output.line(f"{'download':>10} {'on disk':>10}")
        for one in packages[:_SHOWN]:
            output.line(_row(one["download"], one["disk"], f"{one['name']} {one['version']}"))
        rest = packages[_SHOWN:]
        if rest:
            output.line(
                _row(_sum(rest, "download"), _sum(rest, "disk"), f"{len(rest)} more (--json lists them)")
            )
        output.line(_row(target["download"], target["disk"], f"all {len(packages)} packages"))
    for text in document["over_budget"]:
        output.line(f"over budget: {text}", style="yellow")


def _row(download: int, disk: int, what: str) -> str:
    return f"{download / 1e6:10.1f} {disk / 1e6:10.1f}  {what}"


def _sum(packages: list[dict[str, Any]], key: str) -> int:
    return sum(one[key] for one in packages)
