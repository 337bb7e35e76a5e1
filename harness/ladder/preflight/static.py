"""The static part: all findings about a training command, without Ray and without running any of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.adapt.verls import here
from harness.data.finding import Finding
from harness.errors import ModelError
from harness.ladder import compose
from harness.ladder.preflight import facts as look
from harness.ladder.preflight import kinds, reads, tree, verls
from harness.ladder.preflight.command_line import TRAINER, Asked
from harness.ladder.preflight.facts import DataFile, Facts, Model
from harness.ladder.preflight.rules import evaluate

_STOOD_IN = frozenset({"data.train_files", "data.val_files"})
_LEVELS = {"fault": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """What is known of a command; ``config`` is none where nothing composed."""

    asked: Asked
    words: tuple[str, ...]
    config: Mapping[str, Any] | None
    facts: Facts
    findings: tuple[Finding, ...]


def inspect(asked: Asked) -> Inspected:
    """Compose the command and judge it. Never raises for what the user wrote."""
    if not asked.trains:
        return Inspected(asked=asked, words=(), config=None, facts=Facts(), findings=(_not_ppo(asked),))
    asked = replace(asked, words=tree.as_read(asked.words, here()))
    composed = tree.put(asked)
    if composed.config is None:
        return Inspected(asked=asked, words=(), config=None, facts=Facts(), findings=composed.findings)
    findings = list(composed.findings)
    config, base = (plain(node, findings) for node in (composed.config, composed.verls))
    near = {key: found for key in composed.forced if (found := tree.nearest(key, composed.verls))}
    findings += reads.unread(composed.forced, base, reads.index(compose.verl_folder()), near)
    findings += kinds.wrong(config, base, verls.field_types(base))
    if composed.verls is not composed.base:
        findings += kinds.missing(config, base)
    facts = gather(config, asked)
    findings += evaluate(config, facts)
    findings += verls.validate(composed.config, composed.verls, {finding.id for finding in findings})
    return Inspected(
        asked=asked, words=composed.words, config=config, facts=facts, findings=_ordered(findings)
    )


def standing_in(found: Inspected) -> Inspected:
    """The same, where data files and a model that are not here are a note: others stand in for them."""
    findings = tuple(
        replace(f, level="note", todo=None)
        if f.id == "model-missing" or (f.id == "file-missing" and f.key in _STOOD_IN)
        else f
        for f in found.findings
    )
    return replace(found, findings=_ordered(findings))


def gather(config: Mapping[str, Any], asked: Asked) -> Facts:
    """Read what the configuration names: files, rows, model, reward function."""
    model = look.model(_select(config, "actor_rollout_ref.model.path"), asked.folder)
    tokenizer = _tokenizer(model, asked)
    train, val = (
        look.data_files(config, which, asked.folder, tokenizer) for which in ("train_files", "val_files")
    )
    return Facts(
        names=verls.names(_sources((*train, *val))),
        train=train,
        val=val,
        model=model,
        reward=look.reward(_select(config, "reward.custom_reward_function"), asked.folder),
        environ=asked.environ,
        wandb_login=look.wandb_login(asked.environ),
        checkpoints=look.checkpoints(config, asked.folder),
        missing_paths=look.missing_paths(config, asked.folder),
    )


def _tokenizer(model: Model | None, asked: Asked) -> Any:
    from harness.data.model_check import load_tokenizer

    if model is None or model.kind != "folder" or model.has_template is False:
        return None
    try:
        return load_tokenizer(asked.path(model.given))
    except ModelError:  # the model's own check says what is wrong with it, in the run
        return None


def _sources(files: Iterable[DataFile]) -> list[str]:
    found = (source for file in files if file.checked for source in file.checked.data_sources)
    return list(dict.fromkeys(found))[:50]


def _select(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def plain(node: Any, findings: list[Finding]) -> dict[str, Any]:
    """The configuration as plain values; an interpolation that leads nowhere is a finding, once."""
    from omegaconf import OmegaConf

    try:
        resolved: Any = OmegaConf.to_container(node, resolve=True)
    except Exception as error:  # noqa: BLE001 - OmegaConf has a family of errors for this
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        key = next((m[1] for line in lines if (m := re.search(r"full_key: (\S+)", line))), "config")
        finding = Finding(
            id="interpolation",
            key=key,
            what="an interpolation cannot be resolved",
            why=lines[0] if lines else type(error).__name__,
            todo="correct the ${...} in the value",
        )
        if finding not in findings:
            findings.append(finding)
        resolved = _leaves(node)
    return resolved if isinstance(resolved, dict) else {}


def _leaves(node: Any) -> Any:
    """The values that can be resolved, each by itself; the others are none."""
    from omegaconf import DictConfig, OmegaConf

    if not isinstance(node, DictConfig):
        return OmegaConf.to_container(node, resolve=False) if OmegaConf.is_config(node) else node
    found = {}
    for key in node.keys() if not node._is_none() else ():  # noqa: SLF001 - a section that is null has no keys
        try:
            found[str(key)] = _leaves(node[key])
        except Exception:  # noqa: BLE001 - what cannot be resolved was told already
            found[str(key)] = None
    return found


def _not_ppo(asked: Asked) -> Finding:
    return Finding(
        id="not-the-trainer",
        key=asked.module,
        what=f"{asked.module} is not verl's PPO trainer",
        why=_known_module(asked.module),
        todo=f"preflight looks at: python -m {TRAINER}",
    )


def _known_module(module: str) -> str:
    """Whether verl 0.9.1 has the module at all: guides name some that are long gone."""
    parts = module.split(".")
    if parts[0] != "verl":
        return "it is a program of its own"
    path = compose.verl_folder().joinpath(*parts[1:])
    if path.with_suffix(".py").is_file() or path.is_dir():
        return "it has another configuration, which is not checked here"
    return f"verl {here()} has no such module"


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    once = dict.fromkeys(findings)
    return tuple(sorted(once, key=lambda finding: _LEVELS[finding.level]))
