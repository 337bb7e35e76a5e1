"""What the facts do not say, and the profile depends on: from that nothing follows. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from harness.build.audit.limits import is_version
from harness.build.doctor import gpu
from harness.build.doctor.facts import Facts
from harness.build.doctor.finding import Finding, Measure

_DESCRIBE = "complete the description: `verlock doctor --facts-only` on that machine writes all of it"


def facts(facts: Facts, against: Measure) -> Iterator[Finding]:
    """One finding for each fact that is missing, or that is no value to compare.

    A description may leave keys out; what is gathered here has them all, but some systems do not tell.
    """
    for what, reason in (*_sections(facts, against), *_system(facts), *_graphics(facts, against)):
        yield Finding(
            id="facts.unknown", severity="warning", what=f"not known: {what}", reason=reason, remedy=_DESCRIBE
        )


def _sections(facts: Facts, against: Measure) -> Iterator[tuple[str, str]]:
    cuda = against.profile.run.device == "cuda"
    for key, what, needed in (
        ("schema_version", "which version of its form the description has (schema_version)", True),
        ("environment", "whether the environment is made (environment, null where it is not)", True),
        ("leftovers", "what killed climbs left behind (leftovers)", True),
        ("engines", "which container engines there are (engines, [] where there is none)", cuda),
    ):
        if needed and not facts.told(key):
            yield what, "the facts do not have the key"


def _system(facts: Facts) -> Iterator[tuple[str, str]]:
    host = facts.host
    if host.system == "darwin":
        if not is_version(host.macos):
            yield _version("macOS", "host.macos", host.macos)
        return
    if not is_version(host.glibc):
        yield _version("the C library", "host.glibc", host.glibc)
    if facts.shm is None:
        yield "how much shared memory there is (shm)", "the facts have none, and every Linux has a /dev/shm"


def _graphics(facts: Facts, against: Measure) -> Iterator[tuple[str, str]]:
    if against.profile.run.device != "cuda":
        return
    found = facts.nvidia
    if not found.told:
        yield (
            "which GPUs there are (nvidia)",
            "the facts say neither what is on the bus nor what nvidia-smi lists",
        )
        return
    if (found.cards or found.driver is not None) and not is_version(found.driver):
        yield _version("the GPU's driver", "nvidia.driver", found.driver)
    if found.cards and gpu.capability(found.cards[0]) is None:
        yield (
            f"the compute capability of {found.cards[0].name} (nvidia.cards.0.capability)",
            "the facts do not say it, and the name is none that it is known for",
        )


def _version(of: str, key: str, given: str | None) -> tuple[str, str]:
    why = "the facts do not say it" if given is None else f"{given!r} is no version: dotted numbers"
    return f"the version of {of} ({key})", why
