"""What Ray waits for, asked of its control store by address: no dashboard, no new driver.

``python -m harness.ladder.ray_state ADDRESS`` prints one JSON document; a process of its own, so that a
Ray that does not answer cannot hold up the climb.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import psutil

from harness.diagnose.hang import Demand, RayState
from harness.evidence.processes import Members

_SECONDS = 30.0
_FLAG = "--gcs-address="


def ask(run_id: str, environ: Mapping[str, str]) -> RayState | None:
    """The state of the run's Ray; ``None`` where there is none, or it does not answer."""
    address, authentication = _cluster(run_id)
    if address is None:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "harness.ladder.ray_state", address],
            capture_output=True,
            text=True,
            check=True,
            env={**environ, **authentication},
            timeout=_SECONDS,
        )
        document = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return RayState(
        total=document["total"],
        used=document["used"],
        demands=tuple(Demand(**demand) for demand in document["demands"]),
    )


def _cluster(run_id: str) -> tuple[str | None, dict[str, str]]:
    """Address and way of authentication, from the raylet: the run's own, of perhaps several on the machine.

    ``ray.init`` turns token authentication on in its own process; whoever asks later must be told.
    """
    for process in Members(run_id).find():
        try:
            words, variables = process.cmdline(), process.environ()
        except (psutil.Error, OSError):
            continue
        for word in words:
            if word.startswith(_FLAG):
                kept = {key: value for key, value in variables.items() if key.startswith("RAY_AUTH")}
                return word.removeprefix(_FLAG), kept
    return None, {}


def main(address: str) -> None:
    """Print what the cluster has, uses, and is asked for."""
    from ray.autoscaler.v2.sdk import get_cluster_status

    status = get_cluster_status(address)
    wanted = status.resource_demands
    demands = [
        {"kind": kind, "bundle": dict(asked.bundle), "count": asked.count}
        for kind, groups in (
            ("placement group", wanted.placement_group_demand),
            ("actor or task", wanted.ray_task_actor_demand),
        )
        for group in groups
        for asked in group.bundles_by_count
    ]
    usage = {u.resource_name: (u.total, u.used) for u in status.cluster_resource_usage}
    document = {
        "total": {name: total for name, (total, _) in usage.items()},
        "used": {name: used for name, (_, used) in usage.items()},
        "demands": demands,
    }
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
