"""``verlock prove``: the image is built twice from nothing, and must be the same to the last bit.

Nobody has to believe that a lock makes an image reproducible: here it is tried. Base, packages and byte
code are made twice, without any cache; both results are made canonical and compared.
"""

from __future__ import annotations

import json
from typing import Any

from harness.build import base, files
from harness.build.image.compare import Difference, compare
from harness.build.image.make import Bench, bench, once, place, publish
from harness.console import Output
from harness.errors import NotReproducibleError, Problem
from harness.profiles import Profile, load

FIRST = "first.tar"
SECOND = "second.tar"
RECORD = "prove.json"
_SHOWN = 40


def prove(given: str, *, output: Output) -> dict[str, Any]:
    """Build the profile's image twice; return what was proven, which ``prove.json`` keeps.

    Raises:
        NotReproducibleError: the two differ; one problem a path. Both archives are kept then.
    """
    profile = load(given)
    home = place(profile)
    (home / RECORD).unlink(missing_ok=True)
    with bench(profile, home, update_base=False, fresh_base=True, output=output) as ready:
        first = once(ready, home / FIRST, no_cache=True)
        seconds = dict(ready.seconds)
        _base_again(ready, profile)
        second = once(ready, home / SECOND, no_cache=True)
        differences = [] if first.archive == second.archive else compare(first.path, second.path)
        if first.archive != second.archive:
            raise _differs(profile, differences)
        second.path.unlink()
        image = publish(ready, first)
    proof = {
        "profile": profile.name,
        "identical": True,
        "builds": 2,
        "image": image,
        "seconds": {"first": seconds, "second": ready.seconds},
    }
    files.write(home / RECORD, json.dumps(proof, indent=2) + "\n")
    return proof


def _base_again(ready: Bench, profile: Profile) -> None:
    """Bootstrap the base a second time, which must give the same one.

    Raises:
        NotReproducibleError: it does not.
    """
    if ready.base.archive is None:
        return
    other = ready.home / "second-base"
    with ready.timed("base"):
        again = base.prepare(profile, other, update=False, fresh=True, output=ready.output)
    if again.archive is None:
        return
    if again.digest != ready.base.digest:
        raise _differs(profile, compare(ready.base.archive, again.archive))
    again.archive.unlink()
    again.archive.with_suffix(".json").unlink()
    other.rmdir()


def _differs(profile: Profile, differences: list[Difference]) -> NotReproducibleError:
    """The error that names each path, the first forty of them."""
    todo = {
        "byte code": "compile it with unchecked hashes, or leave it out",
        "log": "remove it in the step that writes it",
        "cache": "remove it in the step that writes it",
        "time stamp": "set it from SOURCE_DATE_EPOCH, or remove it",
        "ownership": "set owner and mode in the step that makes it",
        "unknown": "compare the two archives in the folder of the profile under dist/",
    }
    problems = [
        Problem(what=f"differs: {one.kind}", where=one.path, why=one.detail, todo=todo[one.kind])
        for one in differences[:_SHOWN]
    ]
    more = len(differences) - len(problems)
    head = Problem(
        what=f"two builds of {profile.name} differ in {len(differences)} paths"
        + (f", of which {_SHOWN} are listed" if more > 0 else ""),
        where=f"dist/{profile.name}",
    )
    return NotReproducibleError(head, *problems)
