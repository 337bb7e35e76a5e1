"""The page of claims, generated from what is committed beside their tests."""

from __future__ import annotations

from harness.commands.common import Check, Json, changed
from harness.console import Output


def claims(check: Check = False, as_json: Json = False) -> None:
    """Generate docs/claims.md: what people say about verl on such hardware, and what is so."""
    from harness.build.claims import publish

    changed(publish(check=check), Output(as_json=as_json))
