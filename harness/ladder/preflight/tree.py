"""The user's words in verl's own configuration tree: what composes, and each word that does not, and why."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.adapt import verls
from harness.data.finding import Finding
from harness.ladder import compose
from harness.ladder.preflight.command_line import Asked

_NAMED = re.compile(r"(?:Could not (?:override|append to config|delete)[^'\n]*'|located at ')([^']+)'")
# Keys that guides name and no release has; those of other releases are harness/adapt/verls.yaml's.
_MEANT = {
    "val_generations_to_log_to_wandb": "trainer.log_val_generations",
    "actor_rollout_ref.fsdp_config.cpu_offload": "actor_rollout_ref.actor.fsdp_config.param_offload",
    "actor_rollout_ref.fsdp_config.offload_params": "actor_rollout_ref.actor.fsdp_config.param_offload",
}


@dataclass(frozen=True, kw_only=True)
class Composed:
    """``config`` is the DictConfig of the words that compose (none where not even the tree does)."""

    config: Any
    base: Any
    """The tree with the same groups, and none of the words' values."""
    verls: Any
    """verl's own tree, where the user's is another."""
    words: tuple[str, ...]
    forced: tuple[str, ...]
    """Keys set with ``+`` or ``++`` that verl's tree does not have."""
    findings: tuple[Finding, ...]


def key_of(word: str) -> str:
    """The key of an override, without ``+``, ``++``, ``~``."""
    return word.split("=", 1)[0].lstrip("+~")


def as_read(words: Sequence[str], verl: str) -> tuple[str, ...]:
    """The words as ``verl`` reads them: where it moves old places of rewards to the new ones, moved."""
    if not verls.moves_rewards(verl):
        return tuple(words)
    moved = []
    for text in words:
        key = key_of(text)
        new = verls.moved_reward(key)
        moved.append(text.replace(key, new, 1) if new else text)
    return tuple(moved)


def put(asked: Asked) -> Composed:
    """Compose; each word that Hydra refuses is a finding, and the rest is composed without it."""
    findings = [_unknown_option(option) for option in asked.unknown]
    with _hydra(asked) as (make, name, problem):
        if problem is not None:
            return _nothing((*findings, problem))
        words, grammar = _readable(asked.words)
        findings += grammar
        groups = [word for word in words if _is_group(word)]
        base = _try(make, name, groups)
        if isinstance(base, Exception):
            findings.append(_whole(base, name))
            return _nothing(tuple(findings))
        config, words, refused = _compose(make, name, words, base)
        findings += refused
    verls = base if _is_verls(asked) else compose.compose_config(())
    forced = [key_of(word) for word in words if word.startswith("+") and not has(base, key_of(word))]
    if verls is not base:
        forced += [key for key in compose.keys(base) if not has(verls, key)]
    return Composed(
        config=config,
        base=base,
        verls=verls,
        words=tuple(words),
        forced=tuple(dict.fromkeys(forced)),
        findings=tuple(findings),
    )


def _is_verls(asked: Asked) -> bool:
    """Whether the configuration is one of verl's own, however it was named."""
    name = (asked.config_name or "ppo_trainer").removesuffix(".yaml")
    home = compose.verl_folder() / "trainer" / "config"
    return _folder(asked)[0].resolve() == home.resolve() and (home / f"{name}.yaml").is_file()


def _nothing(findings: tuple[Finding, ...]) -> Composed:
    return Composed(config=None, base=None, verls=None, words=(), forced=(), findings=findings)


@contextlib.contextmanager
def _hydra(asked: Asked) -> Iterator[tuple[Any, str, Finding | None]]:
    """Hydra on verl's tree, or on the user's own folder with verl's beside it."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    name = (asked.config_name or "ppo_trainer").removesuffix(".yaml")
    folder, problem = _folder(asked)
    if problem is not None:
        yield None, name, problem
        return
    GlobalHydra.instance().clear()
    # A search path such as file://verl/trainer/config starts at the working folder of a verl checkout.
    checkout = (asked.folder / "verl" / "trainer" / "config").is_dir()
    inside = asked.folder if checkout else compose.verl_folder().parent
    with contextlib.chdir(inside), initialize_config_dir(str(folder), version_base=None):
        yield hydra_compose, name, None


def _folder(asked: Asked) -> tuple[Path, Finding | None]:
    verls = compose.verl_folder() / "trainer"
    if asked.config_path is None:
        return verls / "config", None
    given = Path(asked.config_path).expanduser()
    # hydra.main: absolute, or relative to the file with the decorator.
    folder = given if given.is_absolute() else verls / given
    if folder.is_dir():
        return folder, None
    here = asked.folder / given
    why = f"Hydra starts a relative path at verl/trainer, and there is no {folder}"
    todo = f"give it absolute: --config-path {here.resolve()}" if here.is_dir() else "check the path"
    return folder, Finding(id="config-path", key="--config-path", what="no such folder", why=why, todo=todo)


def _unknown_option(option: str) -> Finding:
    return Finding(
        id="unknown-option",
        key=option,
        what=f"{option} is no option of Hydra's",
        why="main_ppo takes key=value, and Hydra's own options",
        todo="write key=value without dashes",
    )


def _readable(words: Sequence[str]) -> tuple[list[str], list[Finding]]:
    """Words of Hydra's grammar; the others are findings."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    good, findings = [], []
    for word in words:
        try:
            parser.parse_override(word)
        except Exception as error:  # noqa: BLE001 - Hydra's parser lets ANTLR's errors through as well
            findings.append(
                Finding(
                    id="override-syntax",
                    key=word[:80],
                    what="Hydra cannot read this word",
                    why=_short(error),
                    todo="write key=value; quote values with brackets, commas or spaces: 'key=\"a b\"'",
                )
            )
        else:
            good.append(word)
    return good, findings


def _is_group(word: str) -> bool:
    key = key_of(word)
    return "@" in key or key == "model_engine"


def _try(make: Any, name: str, words: Sequence[str]) -> Any:
    try:
        return make(config_name=name, overrides=list(words))
    except Exception as error:  # noqa: BLE001 - Hydra and OmegaConf share no base class
        return error


def _compose(make: Any, name: str, words: list[str], base: Any) -> tuple[Any, list[str], list[Finding]]:
    """Take away what Hydra refuses, one word after the other, until the rest composes."""
    findings: list[Finding] = []
    while True:
        config = _try(make, name, words)
        if not isinstance(config, Exception):
            return config, words, findings
        bad = _culprit(config, words, make, name)
        if bad is None:
            findings.append(_whole(config, name))
            return base, [], findings
        findings.append(_refused(bad, config, base))
        words = [word for word in words if word != bad]


def _culprit(error: Exception, words: Sequence[str], make: Any, name: str) -> str | None:
    named = _NAMED.search(str(error))
    if named:
        bare = named[1].lstrip("+~")
        same = [word for word in words if key_of(word) == bare]
        # Of two words with one key, the one that is refused by itself.
        found = next((word for word in same if isinstance(_try(make, name, [word]), Exception)), None)
        if same:
            return found or same[0]
    return next((word for word in words if isinstance(_try(make, name, [word]), Exception)), None)


def _refused(word: str, error: Exception, base: Any) -> Finding:
    key, value = key_of(word), word.partition("=")[2]
    if word.startswith("+") and _get(base, key) is not _ABSENT:
        return Finding(
            id="key-exists",
            key=key,
            what=f"verl has this key already: {word}",
            why="+ is for new keys; an older verl may have needed it here",
            todo=f"write {key}={value}",
        )
    none = verls.lost(key, verls.here())
    near = None if none else nearest(key, base)
    return Finding(
        id="unknown-key",
        key=key,
        what=f"verl has no such key: {word}",
        why=verls.told(key) or _short(error),
        todo=f"did you mean {near}?"
        if near
        else f"leave it out: {none}"
        if none
        else "leave it out; its keys are in verl/trainer/config, and +KEY adds one that your own code reads",
    )


def _whole(error: Exception, name: str) -> Finding:
    return Finding(
        id="config-tree",
        key=name,
        what=f"the configuration {name} does not compose",
        why=_short(error),
        todo="check --config-path, --config-name and the defaults list of the file",
    )


def nearest(key: str, base: Any) -> str | None:
    """The real key that is meant: renamed ones first, then a slip in it, then the same name elsewhere.

    The last part itself must be alike: two keys of one long section are so by their section alone.
    """
    meant = _MEANT.get(key) or verls.renamed(key, verls.here())
    if meant is not None:
        return meant
    last = _last(key)
    names = compose.keys(base)
    alike = set(difflib.get_close_matches(last, {_last(name) for name in names}, n=20, cutoff=0.75))
    slips = [name for name in names if _last(name) in alike]
    near = difflib.get_close_matches(key, slips, n=1, cutoff=0.8)
    if near:
        return near[0]
    same = [name for name in names if _last(name) == last]
    return next(iter(difflib.get_close_matches(key, same, n=1, cutoff=0.4)), None)


def _last(key: str) -> str:
    return key.rsplit(".", 1)[-1]


_ABSENT = object()


def _get(config: Any, key: str) -> Any:
    """The node at ``key`` without resolving it; ``_ABSENT`` where there is none."""
    from omegaconf import DictConfig

    node = config
    for part in key.split("."):
        if not isinstance(node, DictConfig) or node._is_none() or part not in node.keys():  # noqa: SLF001, SIM118
            return _ABSENT
        node = node._get_node(part)  # noqa: SLF001 - reading the value would fail on missing ones
    return node


def has(config: Any, key: str) -> bool:
    """Whether the tree has ``key``."""
    return _get(config, key) is not _ABSENT


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2])[:300] or type(error).__name__
