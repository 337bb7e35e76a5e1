"""Every private piece of Ray that the fork server rests on, for the one Ray that it was made for.

Ray 2.59.0. The raylet starts a worker as ``python SETUP_WORKER_PATH DEFAULT_WORKER_PATH ARGUMENTS``; the
first path is a parameter of ``start_raylet``, so a stand-in can take its place. What the stand-in replaces
(``setup_worker.py``, ``RuntimeEnvContext.exec_worker``) and what a child runs (``default_worker.py``) is
compared with the sources that were read, by digest.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.warm import standin

RAY = "2.59.0"
_SOURCES = {
    "_private/workers/default_worker.py": "797c8e149c69887280188cc800c051231ea98afca712929746bdd351291866c0",
    "_private/workers/setup_worker.py": "9b99dcb0e7405e3e888ec84e66dd2785f88582188b510fd53ad5f81d023a0874",
    "_private/runtime_env/context.py": "4c6934617819e2245b7bf16a73496139955542573cd4dfaf04d8fc6831f57607",
}
_PARAMETER = "setup_worker_path"
_AGENT_COMMAND = "_build_python_executable_command_memory_profileable"
# ray/_private/process_watcher.py: agents end when their standard input does, or when their parent is another.
_AGENTS = ("agent.py", "main.py")
_BY_PIPE = "RAY_enable_pipe_based_agent_to_parent_health_check"
_SERVICES = ("start_ray_process", _AGENT_COMMAND)
# What the raylet gives each worker and Ray's C++ configuration reads once, when ray is imported; without
# a value a worker aborts (core_worker.cc: "Check failed: !job_id_env.empty()"). The nil job is what the
# raylet itself gives to workers that it starts ahead of time.
_NIL_JOB = "ffffffff"


def installed_problem() -> str | None:
    """Why the installed Ray is not the one this was made for; reads files, imports nothing of Ray."""
    try:
        found = version("ray")
    except PackageNotFoundError:
        return "ray is not installed"
    if found != RAY:
        return f"ray {found} is installed, the fork server knows {RAY}"
    spec = find_spec("ray")
    if spec is None or spec.origin is None:
        return "ray cannot be found"
    for name, digest in _SOURCES.items():
        path = Path(spec.origin).parent / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            return f"{path} is not the file of ray {RAY}"
    return None


def imported_problem() -> str | None:
    """Why the imported Ray lacks what is used below."""
    import ray
    from ray import _raylet
    from ray._private import services

    if _PARAMETER not in inspect.signature(services.start_raylet).parameters:
        return f"ray._private.services.start_raylet takes no {_PARAMETER}"
    missing = [n for n in ("ActorClassID", "Config", "setproctitle", "WorkerID") if not hasattr(_raylet, n)]
    missing += [n for n in _SERVICES if not hasattr(services, n)]
    missing += [n for n in ("ActorClassID",) if not hasattr(ray.actor, n)]
    return f"ray has no {', '.join(missing)}" if missing else None


class _ClassID:
    """``ActorClassID.from_random()`` without Ray's C++ generator.

    ``@ray.remote`` draws one for each class when its module is imported. The first draw seeds a generator
    that every forked child would then share: equal ids of placement groups and objects, and once a worker
    that crashed at ``core_worker.cc ... erased == 1``.
    """

    @staticmethod
    def from_random() -> Any:
        from ray._raylet import ActorClassID

        return ActorClassID(os.urandom(ActorClassID.size()))


def before_imports() -> None:
    """Import Ray so that its id generator stays unused; call it before anything that uses ``@ray.remote``.

    A worker ends itself when the process RAY_RAYLET_PID is gone: for a child that is the fork server, and
    its stand-in is tied to the raylet.
    """
    at_import = {"RAY_JOB_ID": _NIL_JOB, "RAY_RAYLET_PID": str(os.getpid())}
    os.environ |= at_import
    import ray.actor

    for name in at_import:
        del os.environ[name]
    ray.actor.ActorClassID = _ClassID  # type: ignore[assignment,misc,unused-ignore]


def redirect_workers() -> None:
    """Make a driver start :mod:`harness.warm.standin` for each worker and service of its Ray."""
    from ray._private import services

    original = services.start_raylet

    @functools.wraps(original)
    def start_raylet(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(*args, **kwargs)
        os.environ[standin.SETUP_WORKER_VARIABLE] = bound.arguments[_PARAMETER]
        bound.arguments[_PARAMETER] = standin.__file__
        return original(*bound.args, **bound.kwargs)

    services.start_raylet = start_raylet
    _redirect_services(services)


def _redirect_services(services: Any) -> None:
    """The same for Ray's own Python processes: log monitor, autoscaler, dashboard and two agents.

    Each imports Ray for a second or two, at the moment when the driver waits for them.
    """
    start, build = services.start_ray_process, getattr(services, _AGENT_COMMAND)

    @functools.wraps(start)
    def start_ray_process(command: list[str], *args: Any, **kwargs: Any) -> Any:
        python, *rest = command
        if python == sys.executable and rest and rest[0] != standin.__file__:
            command = [python, standin.__file__, standin.SCRIPT, *rest]
        return start(command, *args, **kwargs)

    @functools.wraps(build)
    def agent_command(*args: Any, **kwargs: Any) -> list[str]:
        python, *rest = build(*args, **kwargs)
        # With a memory profiler around it there are more words: those agents start normally.
        return [python, *rest] if set(rest) - {"-u"} else [python, standin.__file__, standin.SCRIPT, *rest]

    services.start_ray_process = start_ray_process
    setattr(services, _AGENT_COMMAND, agent_command)


def start_head(folder: str, *, cpus: int, gpus: int) -> str:
    """Start a Ray of one node as ``ray.init`` does, without a driver; returns its address.

    Its first driver is then the trainer's, as in a Ray that the trainer starts itself.
    """
    import ray._private.parameter
    from ray._private import node
    from ray._private.authentication import authentication_token_setup as tokens

    tokens.enable_token_auth_by_default()
    tokens.ensure_token_if_auth_enabled({}, create_token_if_missing=True)
    wanted = ray._private.parameter.RayParams(  # noqa: SLF001
        num_cpus=cpus, num_gpus=gpus, include_dashboard=False, temp_dir=folder
    )
    head = node.Node(wanted, head=True, shutdown_at_exit=True, spawn_reaper=True, ray_init_cluster=True)
    return str(head.address)


def own_title(title: str) -> None:
    """Set the process title. At the first call Ray finds where titles are kept: do that before forking."""
    from ray import _raylet

    _raylet.setproctitle(title)


def in_child() -> None:
    """Undo the guard, and let Ray read RAY_AUTH_MODE again: the driver sets it for its workers.

    Ray itself does it that way (ray/_private/authentication/authentication_token_setup.py).
    """
    import ray.actor
    from ray._raylet import ActorClassID, Config

    ray.actor.ActorClassID = ActorClassID
    Config.initialize("")
    consts: Any = sys.modules.get("ray.dashboard.consts")
    if consts is not None:  # read at import; the raylet sets it for its agents only
        consts.PARENT_HEALTH_CHECK_BY_PIPE = _is_true(os.environ.get(_BY_PIPE))


def random_id() -> str:
    """An id from Ray's own generator: never call it in a process that will fork others."""
    from ray._raylet import WorkerID

    return str(WorkerID.from_random().hex())


def worker_problem(arguments: Sequence[str]) -> str | None:
    """Why this worker cannot be forked: a runtime environment that needs another program around it."""
    context, rest = _parse(arguments)
    default = Path(sys.modules["ray"].__file__ or "").parent / "_private" / "workers" / "default_worker.py"
    if not rest or Path(rest[0]) != default:
        return f"the worker runs {rest[:1]}, not Ray's default_worker.py"
    if context.command_prefix or context.override_worker_entrypoint:
        return "its runtime environment wraps the worker in another command"
    if Path(context.py_executable) != Path(sys.executable):
        return f"its runtime environment wants {context.py_executable}"
    return None


def worker_variables(arguments: Sequence[str]) -> Mapping[str, str]:
    """The variables of the worker's runtime environment."""
    context, _rest = _parse(arguments)
    return dict(context.env_vars)


def _is_true(text: str | None) -> bool:
    return (text or "").lower() in {"1", "true"}


def script_problem(environment: Mapping[str, str], arguments: Sequence[str]) -> str | None:
    """Why this service cannot be forked: an agent may end itself when its parent is not the raylet."""
    agent = any(Path(word).name in _AGENTS for word in arguments[:2])
    if agent and not _is_true(environment.get(_BY_PIPE)):
        return f"without {_BY_PIPE} an agent looks at its parent's pid"
    return None


def set_worker_variables(arguments: Sequence[str]) -> None:
    """Set them as ``exec_worker`` does, which takes ``${NAME}`` in a value for another variable."""
    from ray._private.utils import update_envs

    update_envs(dict(worker_variables(arguments)))


def worker_words(arguments: Sequence[str]) -> list[str]:
    """What the worker's interpreter would be started with: Ray's ``default_worker.py`` and its arguments."""
    return _parse(arguments)[1]


def _parse(arguments: Sequence[str]) -> tuple[Any, list[str]]:
    from ray._private.runtime_env.context import RuntimeEnvContext
    from ray._private.workers.setup_worker import parser

    parsed, rest = parser.parse_known_args(list(arguments))
    return RuntimeEnvContext.deserialize(parsed.serialized_runtime_env_context or "{}"), rest
