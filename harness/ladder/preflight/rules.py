"""``evaluate(config, facts) -> findings``: everything that would stop the training, or run it in vain.

Pure. Each rule cites the place in verl 0.9.1 that would notice, mostly after models were loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.data.finding import Finding
from harness.ladder.preflight import rules_batch, rules_files, rules_names
from harness.ladder.preflight.facts import Facts
from harness.ladder.preflight.settings import Settings

Rule = Callable[[Settings, Facts], Iterator[Finding]]
RULES: tuple[Rule, ...] = (*rules_batch.RULES, *rules_names.RULES, *rules_files.RULES)


def evaluate(config: Mapping[str, Any], facts: Facts) -> list[Finding]:
    """All rules' findings, in the rules' order; the same finding once."""
    settings = Settings(config)
    found = (finding for rule in RULES for finding in rule(settings, facts))
    return list(dict.fromkeys(found))
