"""The rungs in order, each a function of the context. Imported late: a climb loads what it needs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from harness.ladder.context import Context, Verified
from harness.ladder.options import RungName

_MODULES: dict[RungName, str] = {
    "env": "env_rung",
    "data": "data_rung",
    "forward": "forward_rung",
    "rollout": "rollout_rung",
    "reward": "reward_rung",
    "ppo-mock": "ppo_mock_rung",
    "ppo": "ppo_rung",
    "checkpoint": "checkpoint_rung",
    "ppo-2ranks": "two_ranks_rung",
}


def rung(name: RungName) -> Callable[[Context], Verified]:
    """The function that climbs one rung.

    Its module, and torch with it, is imported at the call: torch reads OMP_NUM_THREADS at import, and
    the climb sets that variable first. (With 2 threads a matrix product splits its rows between them,
    and a row's last bits then depend on its place.)
    """

    def climb(context: Context) -> Verified:
        step: Callable[[Context], Verified] = import_module(f"harness.ladder.{_MODULES[name]}").climb
        return step(context)

    return climb
