"""What the fork server imports before it forks: all that the driver and the workers of a run import."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.adapt import process
from harness.evidence import events
from harness.warm import ray_hooks

# In the order of their weight; each is imported by the driver or by a worker of a PPO or GRPO run.
MODULES = (
    "verl",
    "verl.workers.engine_workers",
    "verl.workers.engine.fsdp",
    "verl.trainer.main_ppo_v0",
    "verl.trainer.ppo.ray_trainer",
    "verl.trainer.ppo.v1",
    "verl.experimental.agent_loop",
    "verl.experimental.reward_loop",
    "verl.experimental.reward_loop.reward_manager",
    "verl.utils.tracking",
    "verl.utils.dataset.rl_dataset",
    "verl.workers.rollout.replica",
    "transfer_queue",
    "torch.utils.tensorboard",
    "torch.distributed.checkpoint.state_dict",
    "harness.adapt.agent_loop",
    "harness.adapt.replay_buffer",
    "harness.adapt.rollout.loader",
    "harness.adapt.rollout.replica",
    "harness.warm.proof",
    "ray._private.workers.setup_worker",
    # What Ray imports when it first serialises, and in `ray.shutdown`.
    "pydantic.v1",
    "ray._private.arrow_serialization",
    "ray.dag.compiled_dag_node",
    # What Ray's own services import.
    "ray.dashboard.agent",
    "ray.dashboard.dashboard",
    "ray.dashboard.modules.reporter.reporter_agent",
    "ray._private.runtime_env.agent.runtime_env_agent",
    "aiohttp.web",
    "ray._private.log_monitor",
    "ray.autoscaler._private.monitor",
    "ray.autoscaler.v2.monitor",
)
# Without these a run is not what the server was made for; the others differ between versions of verl.
REQUIRED = frozenset({"verl"})
# Arrow's allocator starts a thread when it is loaded; a process with threads must not fork.
_WHILE_IMPORTING = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


@contextmanager
def quietly() -> Iterator[None]:
    """What holds while modules are imported: no warnings of theirs, no thread of Arrow's allocator."""
    with _variables(_WHILE_IMPORTING), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _variables(added: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in added}
    os.environ |= added
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def load(*, strict: bool = False) -> list[str]:
    """Import everything; returns what could not be imported. Raises what a required module raises.

    ``strict``: also what any module of verl raises, unless this verl has no such module.
    """
    missing = []
    with quietly():
        for name in MODULES:
            try:
                import_module(name)
            except ImportError as error:
                absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
                if name in REQUIRED or (strict and name.startswith("verl.") and not absent):
                    raise
                missing.append(name)
    return missing


def apart(late: set[str], *, strict: bool = False) -> tuple[list[str], list[dict[str, Any]]]:
    """Import all, with the plug-in's events kept aside: this process runs no verl, so it proves nothing.

    ``late`` must not be there yet; ``strict`` as in :func:`load`. Returns what could not be imported, and the
    patches' events.
    """
    if early := sorted(late & sys.modules.keys()):
        message = f"{', '.join(early)} came with the server's own modules, before its guards"
        raise RuntimeError(message)
    if sys.platform != "linux":
        raise OSError("the fork server is for Linux")
    # In memory: a server that is killed while it imports would leave a file.
    descriptor = os.memfd_create("events")
    aside = Path(f"/proc/self/fd/{descriptor}")
    kept = os.environ.get(events.FILE_VARIABLE)
    os.environ[events.FILE_VARIABLE] = str(aside)
    try:
        process.only_forks = True
        ray_hooks.before_imports()
        missing = load(strict=strict)
        return missing, [event for event in events.read(aside) if event["kind"] == "patch"]
    finally:
        os.close(descriptor)
        if kept is None:
            del os.environ[events.FILE_VARIABLE]
        else:
            os.environ[events.FILE_VARIABLE] = kept


def threads() -> int:
    """How many threads this process has, those of C++ libraries included."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    return 0
