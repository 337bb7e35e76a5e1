"""A Ray that is up before its trainer comes: ``cluster.py FOLDER CPUS GPUS``, started through a stand-in.

It prints one JSON line with Ray's address when Ray is ready, and ends Ray when its standard input ends. Each
run gets a Ray that no run has used: a finished run's placement group keeps the logical GPU for 20 s, and its
named actors would meet the next run's.
"""

from __future__ import annotations

import json
import sys

from harness.warm import ray_hooks


def main(folder: str, cpus: str, gpus: str) -> None:
    """Start Ray and keep it. Its workers are asked of the server that VERLOCK_FORK_WORKERS names."""
    ray_hooks.redirect_workers()
    address = ray_hooks.start_head(folder, cpus=int(cpus), gpus=int(gpus))
    sys.stdout.write(json.dumps({"address": address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:4])
