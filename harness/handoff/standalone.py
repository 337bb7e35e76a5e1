"""The check as one file, for who receives a bundle and has only Python."""

from __future__ import annotations

import inspect

from harness.handoff import p256, verify

_IMPORT = "from harness.handoff.p256 import public_key, signature, signed\n"
_HEAD = "from __future__ import annotations\n"


def text() -> str:
    """The source of :mod:`verify`, with that of :mod:`p256` where it is imported."""
    check, curve = inspect.getsource(verify), inspect.getsource(p256)
    if check.count(_IMPORT) != 1:
        raise ValueError(f"verify.py does not have the line {_IMPORT!r} once")
    return check.replace(_IMPORT, curve.partition(_HEAD)[2].strip() + "\n")
