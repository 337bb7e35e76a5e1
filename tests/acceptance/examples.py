"""Preflight of every FSDP script among verl's examples.

``python examples.py CHECKOUT OUT.json [--static] [NAME...]``: ``CHECKOUT`` is a checkout of verl at the
release; nothing of it is kept but the scripts' names. The results are written after every script, so that
a run that was stopped goes on where it was. Rows of verl's GSM8K layout and the tiny model stand in for
what is not here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 900


def scripts(checkout: Path) -> list[Path]:
    """The scripts that train with FSDP, by verl's own naming."""
    found = sorted((checkout / "examples").rglob("*fsdp*.sh"))
    return [path for path in found if "megatron" not in path.name]


def judge(script: Path, checkout: Path, *, static: bool) -> dict[str, Any]:
    """One script: its faults, how far it came, and the reason where it did not pass."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verlock-examples-") as home:
        words = ["preflight", "--json", "--stand-in-data", "--despite-faults", "--from", "ppo"]
        words += ["--runs", f"{home}/runs", *(["--static"] if static else []), "--", str(script)]
        command = [sys.executable, "-P", "-m", "harness", *words]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": home}
        try:
            done = subprocess.run(
                command,
                cwd=checkout,
                env=environ,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"passed": False, "reason": f"not ended after {SECONDS} s", "faults": []}
    document = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return told(document, done.returncode, done.stderr) | {"seconds": round(time.monotonic() - began, 1)}


def told(document: dict[str, Any], code: int, said: str) -> dict[str, Any]:
    """What the command's document says, in the table's words."""
    findings = document.get("findings", [])
    faults = [f"{f['id']}: {f['key']}" for f in findings if f["level"] == "fault"]
    run = document.get("run") or {}
    passed = run.get("status") == "passed"
    reason = ""
    if "error" in document:
        problem = document["error"]["problems"][0]
        reason = f"{document['error']['type']}: {problem['what']}"
    elif not passed:
        reason = next((f"{f['id']}: {f['what']}" for f in findings if f["level"] == "fault"), "")
        reason = reason or f"exit code {code}: {said.strip().splitlines()[-1:] or ['']}"
    return {
        "passed": passed,
        "reason": reason[:300],
        "faults": faults,
        "changes": len(document.get("changes", [])),
        "not_verified": document.get("not_verified", []),
        "line": next((r["verified"] for r in run.get("rungs", []) if r["name"] == "ppo"), None),
    }


def main() -> None:
    checkout, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    names = [word for word in sys.argv[3:] if not word.startswith("-")]
    kept: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {"scripts": {}}
    version = (checkout / "verl" / "version" / "version").read_text().strip()
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False
    ).stdout.strip()
    kept |= {"checkout": {"version": version, "commit": head or os.environ.get("VERL_COMMIT", "")}}
    for script in scripts(checkout):
        name = str(script.relative_to(checkout / "examples"))
        if (names and name not in names) or (not names and kept["scripts"].get(name, {}).get("passed")):
            continue
        kept["scripts"][name] = judge(script, checkout, static="--static" in sys.argv)
        print(name, kept["scripts"][name]["passed"], kept["scripts"][name]["reason"], flush=True)
        out.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
