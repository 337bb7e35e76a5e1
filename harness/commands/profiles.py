"""What is generated from the profiles: their list, schema, Dockerfiles and locks."""

from __future__ import annotations

from harness.commands.common import Check, Json, Names, Verl, changed
from harness.console import Output


def profiles(as_json: Json = False) -> None:
    """List the hardware profiles."""
    from harness.profiles import load, names

    output = Output(as_json=as_json)
    found = [load(name) for name in names()]
    rows = [
        {"name": p.name, "short": p.short, "platform": p.hardware.platform, "summary": p.summary}
        for p in found
    ]

    def human() -> None:
        for row in rows:
            output.line(f"{row['name']:<12} {row['platform']:<12} {row['summary']}")

    output.result({"profiles": rows}, human)


def schema(check: Check = False, as_json: Json = False) -> None:
    """Generate the JSON Schemas of profiles, failure signatures, and the documents that --json prints."""
    from harness.build import documents, files
    from harness.diagnose import schema as signatures
    from harness.profiles import schema as hardware

    made = {hardware.path(): hardware.text(), signatures.path(): signatures.text()} | documents.made()
    written = files.publish(made, check=check, command="verlock schema")
    changed(written, Output(as_json=as_json))


def render(profiles: Names = None, check: Check = False, as_json: Json = False) -> None:
    """Render the Dockerfile and the overrides of each profile."""
    from harness.build.render import publish

    changed(publish(profiles or (), check=check), Output(as_json=as_json))


def lock(profiles: Names = None, verl: Verl = None, check: Check = False, as_json: Json = False) -> None:
    """Resolve each profile's software to hash-pinned locks, and check them against each other."""
    from harness.build.lock import lock as make
    from harness.profiles import releases

    output = Output(as_json=as_json)
    wanted = [releases.named(name, verl) for name in profiles or (["cpu"] if verl else [])]
    changed(make(wanted, check=check, output=output), output)
