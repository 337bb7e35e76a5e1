"""Forks climbs from a process that has imported what is slow to import, so that many faults can be planted.

Everything of verl, harness and Ray's runtime happens in the fork. One JSON line a climb comes in on standard
input, one exit code goes out. A climb from scratch spends ten seconds on the imports below.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from typing import Any

SLOW = (
    "torch",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch._dynamo",
    "torch.testing",
    "transformers",
    "transformers.models.qwen2.modeling_qwen2",
    "tensordict",
    "datasets",
    "pandas",
    "pyarrow.parquet",
    "hydra",
    "sympy",
    "peft",
    "ray",
    "ray.util.scheduling_strategies",
    "wandb",
    "accelerate",
    "torchdata.stateful_dataloader",
    "codetiming",
    "pydantic",
    "typer",
    "rich.console",
)


def climb(order: dict[str, Any]) -> int:
    """In the fork: become the command line."""
    for number, path in ((1, order["stdout"]), (2, order["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    sys.path[:0] = order["path"]
    sys.argv = ["verlock", *order["words"]]
    try:
        importlib.import_module("harness.cli").main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - the fork must end here, whatever it was
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for name in SLOW:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = climb(json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
