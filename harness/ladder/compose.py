"""verl's own configuration tree with our overrides, composed before anything is started.

Hydra reports one mistake at a time and after seconds of imports; here all words are tried, and each
wrong one is named with the nearest key that exists.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentDiffersError, OverrideError, Problem
from harness.ladder.preflight import kinds


def verl_folder() -> Path:
    """verl's folder, found without importing verl: that takes seconds, and only its files are needed."""
    spec = find_spec("verl")
    if spec is None or spec.origin is None:
        raise EnvironmentDiffersError("verl is not installed", todo="use the environment of the profile")
    return Path(spec.origin).parent


@contextmanager
def _tree() -> Iterator[Any]:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(verl_folder() / "trainer" / "config"), version_base=None):
        yield compose


def compose_config(words: Sequence[str]) -> Any:
    """The composed ``DictConfig``. Raises :class:`OverrideError` with every word that does not compose."""
    with _tree() as compose:
        try:
            return compose(config_name="ppo_trainer", overrides=list(words))
        except Exception as error:  # noqa: BLE001 - Hydra and OmegaConf share no base class
            problems = [p for p in (_problem(compose, text) for text in words) if p]
            raise OverrideError(*(problems or [Problem(what=_first_line(error))])) from None


def check_values(words: Sequence[str]) -> None:
    """Compose ``words``, and hold each value against the kind of its default in verl's tree.

    Raises :class:`OverrideError` with every word that does not compose, or with every value of another kind:
    verl would find it where it is used, after the models are loaded.
    """
    from omegaconf import OmegaConf

    given, base = (OmegaConf.to_container(compose_config(each), resolve=False) for each in (list(words), []))
    keys = {text.split("=", 1)[0].lstrip("+~") for text in words}
    wrong = kinds.wrong(given, base, {})
    problems = [finding.problem for finding in wrong if finding.key in keys]
    if problems:
        raise OverrideError(*problems)


def _problem(compose: Any, text: str) -> Problem | None:
    try:
        compose(config_name="ppo_trainer", overrides=[text])
    except Exception as error:  # noqa: BLE001 - any refusal is the user's mistake, told below
        key = text.split("=", 1)[0].lstrip("+~")
        near = difflib.get_close_matches(key, keys(compose(config_name="ppo_trainer")), n=1)
        return Problem(
            what=f"verl's configuration does not take {text}",
            where=key,
            why=_first_line(error),
            todo=f"did you mean {near[0]}?" if near else "see `verlock climb --help` and verl/trainer/config",
        )
    return None


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def keys(node: Any, prefix: str = "") -> list[str]:
    """Every key of the tree with its path, sections included; no value is read."""
    from omegaconf import DictConfig

    found: list[str] = []
    for key in node:
        name = f"{prefix}{key}"
        found.append(name)
        child = node._get_node(key)  # noqa: SLF001 - reading the value would fail on missing ones
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():  # noqa: SLF001
            found += keys(child, f"{name}.")
    return found


def text(config: Any) -> str:
    """The configuration as YAML, resolved where it can be, for the run record."""
    from omegaconf import OmegaConf

    try:
        return str(OmegaConf.to_yaml(config, resolve=True))
    except Exception:  # noqa: BLE001 - an interpolation that only resolves inside the trainer
        return str(OmegaConf.to_yaml(config))
