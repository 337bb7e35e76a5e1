"""Preflight of every FSDP script among verl's examples.

``python examples.py CHECKOUT OUT.json [--static] [NAME...]``: ``CHECKOUT`` is a checkout of verl at the
release; nothing of it is kept but the scripts' names. The results are written after every script, so that
a run that was stopped goes on where it was. Rows of verl's GSM8K layout and the tiny model stand in for
what is not here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 900
# verl's SFT scripts want the number of processes and a folder for the checkpoints.
ARGUMENTS = {"sft": ("1", "/tmp/sft")}
# Without them these end with "unbound variable" and "must set".
VARIABLES = {
    "grpo_trainer/run_qwen3_vl_30b_a3b_fsdp.sh": {"INFER_BACKEND": "vllm"},
    "tuning/lora/run_qwen3_8b_from_adapter_fsdp.sh": {"LORA_ADAPTER_PATH": "/models/adapter"},
}


def scripts(checkout: Path) -> list[Path]:
    """The scripts that train with FSDP, by verl's own naming."""
    found = sorted((checkout / "examples").rglob("*fsdp*.sh"))
    return [path for path in found if "megatron" not in path.name]


def arguments(script: Path, checkout: Path) -> tuple[str, ...]:
    """What the script is called with."""
    return ARGUMENTS.get(script.relative_to(checkout / "examples").parts[0], ())


def variables(script: Path, checkout: Path) -> dict[str, str]:
    """What it wants of its environment."""
    return VARIABLES.get(str(script.relative_to(checkout / "examples")), {})


def judge_static(script: Path, checkout: Path) -> dict[str, Any]:
    """The faults of one script, in this process: nothing is started."""
    from harness.ladder.preflight import script as shell
    from harness.ladder.preflight.static import inspect, standing_in

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verlock-examples-") as home, contextlib.chdir(checkout):
        recorded = shell.record(
            script, arguments(script, checkout), home=Path(home), environ=variables(script, checkout)
        )
        asked = recorded.asked
        chosen = [one for one in asked if one.trains] or list(asked)
        if not chosen:
            last = (recorded.said.strip().splitlines() or [""])[-1].replace(str(checkout), "")
            return told({}, recorded.exit_code, f"it starts no Python program: {last}") | {"static": True}
        found = standing_in(inspect(chosen[-1]))
    document = {"findings": [finding.document() for finding in found.findings]}
    seconds = round(time.monotonic() - began, 1)
    return told(document, 0, "") | {"static": True, "seconds_static": seconds}


def judge(script: Path, checkout: Path) -> dict[str, Any]:
    """One script: its faults, how far it came, and the reason where it did not pass."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verlock-examples-") as home:
        words = ["preflight", "--json", "--stand-in", "--despite-faults", "--from", "ppo"]
        words += ["--runs", f"{home}/runs", "--", str(script), *arguments(script, checkout)]
        command = [sys.executable, "-P", "-m", "harness", *words]
        environ = {**os.environ, **variables(script, checkout), "PYTHONPATH": str(ROOT), "HOME": home}
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
        last = (said.strip().splitlines() or [""])[-1]
        reason = reason or (f"exit code {code}: {last}" if code or last else "")
    return {
        "passed": passed,
        "reason": reason[:300],
        "faults": faults,
        "mended": [c["key"] for c in document.get("changes", []) if c["why"].startswith("a fault: ")],
        "changes": len(document.get("changes", [])),
        "not_verified": document.get("not_verified", []),
        "line": next((r["verified"] for r in run.get("rungs", []) if r["name"] == "ppo"), None),
    }


def table(document: dict[str, Any]) -> str:
    """The same for people."""
    scripts = document["scripts"]
    passed = sum(entry["passed"] for entry in scripts.values())
    waiting = sum(bool(entry.get("static")) for entry in scripts.values())
    mended = sum(entry["passed"] and bool(entry.get("mended")) for entry in scripts.values())
    source = document["checkout"]
    lines = [
        "<!-- Generated by tests/acceptance/examples.py; do not edit. -->",
        "",
        "# verl's FSDP examples in preflight",
        "",
        f"Scripts of verl {source['version']}, commit {source['commit'][:12]}, with the trainer of 0.9.1",
        f"on the cpu profile: of {len(scripts)}, {passed} passed the `ppo` rung, {waiting} were only judged",
        f"(`not run`). {mended} of those that passed have a fault with verl 0.9.1 that `--despite-faults`",
        "mends with one value, which the table names. Rows of the GSM8K layout and the tiny model stand in",
        "for what the scripts name; examples.json has more of each run.",
        "",
        "| script | ppo rung | why not | faults of the script with verl 0.9.1 | mended |",
        "|---|---|---|---|---|",
    ]
    for name, entry in sorted(scripts.items()):
        state = "passed" if entry["passed"] else "not run" if entry.get("static") else "no"
        reason = "" if entry["passed"] else " ".join(entry["reason"].replace("|", "/").split())
        faults = "; ".join(entry["faults"]).replace("|", "/")
        lines.append(f"| {name} | {state} | {reason} | {faults} | {', '.join(entry.get('mended', []))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    checkout, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    names = [word for word in sys.argv[3:] if not word.startswith("-")]
    kept: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {"scripts": {}}
    version = (checkout / "verl" / "version" / "version").read_text().strip()
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False
    ).stdout.strip()
    kept |= {"checkout": {"version": version, "commit": head or os.environ.get("VERL_COMMIT", "")}}
    static = "--static" in sys.argv
    for script in scripts(checkout):
        name = str(script.relative_to(checkout / "examples"))
        if (names and name not in names) or (not names and kept["scripts"].get(name, {}).get("passed")):
            continue
        kept["scripts"][name] = judge_static(script, checkout) if static else judge(script, checkout)
        print(name, kept["scripts"][name]["passed"], kept["scripts"][name]["reason"], flush=True)
        # The home folder of a script's run is gone by now, and its name is this machine's.
        text = re.sub(r"[^\s\"']*/verlock-examples-\w+", "HOME", json.dumps(kept, indent=1, sort_keys=True))
        out.write_text(text + "\n")
        out.with_suffix(".md").write_text(table(kept))


if __name__ == "__main__":
    main()
