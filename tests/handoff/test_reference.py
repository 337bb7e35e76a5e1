"""An image's name: by digest or not at all, and in the spellings of both generations of enroot."""

from __future__ import annotations

import re

import pytest

from harness.errors import HandoffError
from harness.handoff.reference import Reference

DIGEST = "sha256:" + "0123456789abcdef" * 4
USER = r"[A-Za-z0-9_.!~*'()%;:&=+$,\-@]+"
IMAGE, TAG = r"[a-z0-9/._-]+", r"[A-Za-z0-9._:-]+"
# The rules of enroot's docker::import, as its releases have them (src/docker.sh, 3.5.0 and 4.1.2).
BEFORE_4 = re.compile(
    rf"(?:(?P<user>{USER})@)?(?:(?P<registry>[^#]+)#)?(?P<image>{IMAGE})(?::(?P<tag>{TAG}))?"
)
FROM_4 = (
    re.compile(
        rf"(?:(?P<user>{USER})@)?(?P<registry>[^#/@]+)#(?P<image>{IMAGE})@(?P<tag>sha256:[A-Za-z0-9]+)"
    ),
    re.compile(
        rf"(?:(?P<user>{USER})@)?(?P<registry>[^/#]+)/(?P<image>{IMAGE})@(?P<tag>sha256:[A-Za-z0-9]+)"
    ),
    re.compile(rf"(?:(?P<user>{USER})@)?(?P<image>[^/@#:]+)@(?P<tag>sha256:[A-Za-z0-9]+)"),
)
NAMES = [
    ("registry.example/ml/verlock", "registry.example", "ml/verlock"),
    ("registry.example:5000/verlock", "registry.example:5000", "verlock"),
    ("localhost/a/b/c", "localhost", "a/b/c"),
    ("127.0.0.1:5000/verlock", "127.0.0.1:5000", "verlock"),
    ("verlock", None, "verlock"),
]


@pytest.mark.parametrize(("name", "registry", "path"), NAMES)
def test_a_reference_is_read_and_written(name: str, registry: str | None, path: str) -> None:
    reference = Reference.parse(f"{name}@{DIGEST}")
    assert (str(reference), reference.registry, reference.path) == (f"{name}@{DIGEST}", registry, path)


@pytest.mark.parametrize(("name", "registry", "path"), NAMES)
def test_enroot_before_4_reads_its_spelling_as_meant(name: str, registry: str | None, path: str) -> None:
    match = BEFORE_4.fullmatch(Reference.of(name, DIGEST).enroot_3)
    assert match is not None
    assert (match["user"], match["registry"], match["image"], match["tag"]) == (None, registry, path, DIGEST)


@pytest.mark.parametrize(("name", "registry", "path"), NAMES)
def test_enroot_from_4_reads_its_spelling_as_meant(name: str, registry: str | None, path: str) -> None:
    spelt = Reference.of(name, DIGEST).enroot_4
    match = next(match for rule in FROM_4 if (match := rule.fullmatch(spelt)))
    found = match.groupdict()
    assert (found["user"], found.get("registry"), found["image"], found["tag"]) == (
        None,
        registry,
        path,
        DIGEST,
    )


def test_the_spelling_for_4_does_not_do_before() -> None:
    """Why there are two: the newer one is refused, or read as a user's name."""
    assert BEFORE_4.fullmatch(Reference.of("registry.example/verlock", DIGEST).enroot_4) is None
    misread = BEFORE_4.fullmatch(f"verlock@{DIGEST}")
    assert misread is not None
    assert (misread["user"], misread["image"]) == ("verlock", "sha256")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("verlock:cpu", "names no digest"),
        ("registry.example:5000/verlock", "names no digest"),
        (f"verlock:cpu@{DIGEST}", "has a tag"),
        ("verlock@sha256:123", "is no digest"),
        (f"verlock@{DIGEST.upper()}", "is no digest"),
        (f"Verlock@{DIGEST}", "is no repository"),
        (f"a b@{DIGEST}", "is no repository"),
        (f"@{DIGEST}", "is no repository"),
    ],
)
def test_a_tag_or_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(HandoffError, match=message) as caught:
        Reference.parse(text)
    assert caught.value.exit_code == 35
