"""The user's words, judged before anything is traced: all mistakes at once, in seconds.

What composes can still be no plan: a count of zero, a section that was deleted, a dtype that nobody knows.
The keys here are those that :mod:`harness.ladder.memory.settings` reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.data.finding import Finding, faults
from harness.errors import OverrideError
from harness.ladder.memory.settings import DTYPES
from harness.ladder.preflight import kinds, tree, verls
from harness.ladder.preflight.command_line import TRAINER, Asked
from harness.ladder.preflight.settings import ACTOR, REF, ROLLOUT, Settings
from harness.ladder.preflight.static import plain

_ENGINE = "dp"
_MODEL = "actor_rollout_ref.model"
SECTIONS = (
    "algorithm",
    "data",
    "trainer",
    _MODEL,
    ACTOR,
    f"{ACTOR}.fsdp_config",
    f"{ACTOR}.optim",
    REF,
    f"{REF}.fsdp_config",
    ROLLOUT,
    f"{ROLLOUT}.checkpoint_engine",
    "critic",
    "critic.fsdp",
    "critic.model",
    "critic.optim",
)
COUNTS = (
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    f"{ACTOR}.ppo_mini_batch_size",
    f"{ROLLOUT}.n",
    f"{ROLLOUT}.max_num_seqs",
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
    "critic.ppo_mini_batch_size",
)
MICRO = (
    f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    f"{REF}.log_prob_micro_batch_size_per_gpu",
    "critic.ppo_micro_batch_size_per_gpu",
)
"""Counts that may also be unset."""
WHOLE = (
    f"{_MODEL}.lora_rank",
    f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size",
    f"{ACTOR}.fsdp_config.fsdp_size",
    "critic.fsdp.ulysses_sequence_parallel_size",
    "critic.fsdp.fsdp_size",
)
FSDP = (f"{ACTOR}.fsdp_config", f"{REF}.fsdp_config", "critic.fsdp")


def check(words: Sequence[str], user: Sequence[str]) -> None:
    """Compose ``words``, of which ``user`` are the user's, and judge what comes of them.

    Raises:
        OverrideError: with every word that does not compose, has a value of a wrong kind, or leaves no plan.
    """
    gone = {word: finding for word in user if (finding := _takes_away(word))}
    composed = tree.put(Asked(module=TRAINER, words=tuple(word for word in words if word not in gone)))
    findings = [*gone.values(), *composed.findings]
    if composed.config is not None:
        config, base = (plain(node, findings) for node in (composed.config, composed.verls))
        keys = [tree.key_of(word) for word in user]
        typed = kinds.wrong(config, base, verls.field_types(base))
        findings += [one for one in typed if any(f"{one.key}.".startswith(f"{key}.") for key in keys)]
        told = {one.key for one in findings}
        findings += [one for one in evaluate(config) if one.key not in told]
    if wrong := faults(findings):
        raise OverrideError(*(one.problem for one in wrong))


def evaluate(config: Mapping[str, Any]) -> list[Finding]:
    """What of a resolved configuration leaves nothing to plan. Pure."""
    settings = Settings(config)
    gone = list(_sections(settings))
    return gone or [*_numbers(settings), *_dtypes(settings)]


def _takes_away(word: str) -> Finding | None:
    """A word that leaves the profile's own settings no place: each of them would be told in turn."""
    key, value = tree.key_of(word), word.partition("=")[2]
    if key == "model_engine" and value != _ENGINE:
        return _missing(key, f"{word} chooses another engine")
    if word.startswith("~") and any(f"{section}.".startswith(f"{key}.") for section in SECTIONS):
        return _missing(key, f"{word} takes a section away")
    return None


def _missing(key: str, what: str) -> Finding:
    why = "its keys decide what is taken of the memory, and only verl's FSDP engine is planned"
    return Finding(id="missing-section", key=key, what=what, why=why, todo="leave it as it is")


def _sections(settings: Settings) -> Iterator[Finding]:
    missing = [key for key in SECTIONS if not isinstance(settings.get(key), Mapping)]
    for key in missing:
        if not any(key.startswith(f"{above}.") for above in missing):
            yield _missing(key, f"the configuration has no section {key}")


def _numbers(settings: Settings) -> Iterator[Finding]:
    for key in (*COUNTS, *MICRO):
        value = settings.get(key)
        if not (_whole(value) and value > 0) and not (value is None and key in MICRO):
            yield _finding("not-positive", key, value, "give a whole number above 0")
    for key in WHOLE:
        if not _whole(settings.get(key)):
            yield _finding("not-whole", key, settings.get(key), "give a whole number")
    key = f"{ROLLOUT}.gpu_memory_utilization"
    share = settings.get(key)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        yield _finding("not-a-share", key, share, "give a number above 0, and at most 1")


def _dtypes(settings: Settings) -> Iterator[Finding]:
    named = {f"{ROLLOUT}.dtype": settings.get(f"{ROLLOUT}.dtype")}
    for section in FSDP:
        mixed = settings.get(f"{section}.mixed_precision")
        given = {"model_dtype": settings.get(f"{section}.model_dtype")}
        if isinstance(mixed, Mapping):
            given |= {f"mixed_precision.{name}": mixed.get(name) for name in ("param_dtype", "reduce_dtype")}
        elif mixed is not None:
            yield _finding("not-a-section", f"{section}.mixed_precision", mixed, "give its keys, or null")
        # None takes verl's own default.
        named |= {f"{section}.{name}": value for name, value in given.items() if value is not None}
    for key, value in named.items():
        if str(value) not in DTYPES:
            yield _finding("unknown-dtype", key, value, f"one of: {', '.join(DTYPES)}")


def _finding(kind: str, key: str, value: Any, todo: str) -> Finding:
    shown = "null" if value is None else str(value)
    return Finding(id=kind, key=key, what=f"{key} is {shown}", why="no plan follows from it", todo=todo)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
