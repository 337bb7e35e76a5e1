"""A signature over SHA256SUMS, by cosign with the sender's key: offline, nothing goes to a public log."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from harness.errors import HandoffError, ToolMissingError
from harness.handoff.verify import KEY, SIGNATURE, SUMS


def cosign() -> str:
    """The program that signs.

    Raises:
        ToolMissingError: it is not installed (VERLOCK_COSIGN names another one).
    """
    found = shutil.which(os.environ.get("VERLOCK_COSIGN", "cosign"))
    if found is None:
        raise ToolMissingError(
            "cosign is not installed",
            why="--sign makes its signature with it",
            todo="apt-get install cosign, or name it in VERLOCK_COSIGN",
        )
    return found


def sign(folder: Path, key: Path) -> None:
    """Sign the bundle in ``folder``; cosign takes the key's password from COSIGN_PASSWORD.

    Raises:
        ToolMissingError: as :func:`cosign`.
        HandoffError: cosign refuses the key.
    """
    program = cosign()
    signature = ["--tlog-upload=false", "--yes", "--output-signature", str(folder / SIGNATURE)]
    _run([program, "sign-blob", "--key", str(key), *signature, str(folder / SUMS)], key)
    (folder / KEY).write_bytes(_run([program, "public-key", "--key", str(key)], key))


def _run(command: list[str], key: Path) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise HandoffError(
            "cosign could not sign",
            where=str(key),
            why=done.stderr.decode(errors="replace").strip()[-400:],
            todo="give the private key of `cosign generate-key-pair`, its password in COSIGN_PASSWORD",
        )
    return done.stdout
