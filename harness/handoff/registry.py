"""Pushing the archive to a registry so that its digest stays, and reading it back.

``docker push`` compresses the layers again on the way, and the digest is another one then (measured with
overlay2); skopeo copies the archive's own bytes.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from harness.console import Output
from harness.errors import HandoffError, ToolMissingError
from harness.handoff.reference import Reference

_LOOPBACK = ("127.", "localhost", "[::1]")


def push(archive: Path, reference: Reference, tag: str, output: Output) -> None:
    """Copy ``archive`` to ``reference``'s repository; raises unless the same digest is there afterwards.

    Args:
        archive: an OCI archive with one image.
        reference: where to, and the digest that the image has.
        tag: under which the registry lists it; nothing here is started by it.
        output: where progress goes.

    Raises:
        ToolMissingError: skopeo is not installed.
        HandoffError: the registry refused, or has something else now.
    """
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        raise ToolMissingError(
            "skopeo is not installed",
            why="it copies an image without changing its digest; docker push does not",
            todo="apt-get install skopeo",
        )
    # A registry on this machine's own loopback has no certificate; any other one must have.
    local = (reference.registry or "").startswith(_LOOPBACK)
    target = f"docker://{reference.repository}:{tag}"
    with output.busy(f"pushing {archive.name} to {reference.repository}"):
        copied = _run(
            [
                skopeo,
                "copy",
                "--quiet",
                "--preserve-digests",
                *(["--dest-tls-verify=false"] if local else []),
                f"oci-archive:{archive}",
                target,
            ]
        )
    if copied.returncode != 0:
        raise _refused(reference, "could not be pushed", copied)
    asked = [skopeo, "inspect", "--raw", *(["--tls-verify=false"] if local else []), f"docker://{reference}"]
    there = _run(asked)
    digest = f"sha256:{hashlib.sha256(there.stdout).hexdigest()}"
    if there.returncode != 0 or digest != reference.digest:
        raise _refused(reference, "is not in the registry after the push", there)


def named(reference: Reference) -> None:
    """Refuse a repository without a registry, which skopeo would look for at Docker Hub."""
    if reference.registry is None:
        raise HandoffError(
            f"{reference.repository!r} names no registry",
            why="a host has a dot, a port, or is localhost",
            todo="give --registry HOST/PATH, such as registry.example/ml/verlock",
        )


def _run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, check=False)


def _refused(reference: Reference, what: str, done: subprocess.CompletedProcess[bytes]) -> HandoffError:
    return HandoffError(
        f"the image {what}",
        where=str(reference),
        why=_said(done.stderr.decode(errors="replace")) or None,
        todo="check host and path, and log in where it asks for that: skopeo login HOST",
    )


def _said(text: str) -> str:
    """The message of skopeo's last line, without time and level."""
    messages = re.findall(r'msg="((?:[^"\\]|\\.)*)"', text)
    said = messages[-1].replace('\\"', '"') if messages else text.strip()
    return str(said)[-400:]
