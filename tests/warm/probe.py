"""What a process is like from the inside, as JSON: run by ``python -m probe`` and forked, and compared."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    import numpy as np
    import torch
    import verl.trainer.main_ppo_v0  # noqa: F401 - what an import leaves in the environment is compared
    from ray._raylet import JobID, ObjectRef, PlacementGroupID, WorkerID

    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    found = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "session": os.getsid(0),
        "cwd": str(Path.cwd()),
        "arguments": sys.argv[1:],
        "main": sys.modules["__main__"].__spec__.name if sys.modules["__main__"].__spec__ else None,
        "first_path": sys.path[:2],
        "title": Path("/proc/self/cmdline").read_bytes().decode().rstrip("\0").split("\0"),
        "shown_run": next(
            w for w in Path("/proc/self/environ").read_bytes().decode().split("\0") if "VERLOCK_RUN_ID" in w
        ),
        "environment": {
            k: v for k, v in os.environ.items() if k.startswith(("VERL", "OMP", "PROBE", "RAY_"))
        },
        "c_environment": torch._C._get_cpu_capability(),
        "signals": {
            s.name: str(signal.getsignal(s)) for s in signal.valid_signals() if isinstance(s, signal.Signals)
        },
        "blocked": fields["SigBlk"].strip(),
        "descriptors": sorted(
            str(path.readlink()).split(":")[0]
            for path in Path("/proc/self/fd").iterdir()
            if path.is_symlink() and path.exists() and int(path.name) > 2
        ),
        "threads": threading.active_count(),
        "torch_threads": torch.get_num_threads(),
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
        "deterministic": torch.randn(2, generator=torch.Generator().manual_seed(1)).tolist(),
        "random": random.random(),
        "numpy": float(np.random.random()),
        "torch": torch.rand(1).item(),
        "ids": [
            WorkerID.from_random().hex(),
            ObjectRef.from_random().hex(),
            PlacementGroupID.of(JobID.from_int(1)).hex(),
        ],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sleep", seconds]:
            print("asleep", flush=True)
            time.sleep(float(seconds))
        case ["exit", code]:
            sys.exit(int(code))
        case ["raise", text]:
            raise RuntimeError(text)
        case ["die", number]:
            os.kill(os.getpid(), int(number))
        case _:
            main()
