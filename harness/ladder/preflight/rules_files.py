"""What is read from disk: data files and their rows, the model's folder, the reward function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.adapt import verls
from harness.data import file_kind
from harness.data.finding import Finding
from harness.ladder import reward_source
from harness.ladder.preflight.facts import Facts
from harness.ladder.preflight.settings import Settings

# What people set there: sections hold defaults as well.
_OLD = (
    "custom_reward_function.path",
    "custom_reward_function.name",
    "reward_model.enable",
    "reward_model.reward_manager",
    "reward_model.num_workers",
    "reward_model.model.path",
    "reward_model.rollout.name",
    "sandbox_fusion.url",
)


def present(_s: Settings, facts: Facts) -> Iterator[Finding]:
    """Files that are not there; those elsewhere cannot be looked at."""
    for file in (*facts.train, *facts.val):
        if file.remote:
            yield Finding(
                id="file-remote",
                level="note",
                key=file.key,
                what=f"{file.given} is elsewhere: its rows were not looked at",
            )
        elif not file.present:
            yield Finding(
                id="file-missing",
                key=file.key,
                what=f"there is no file {file.given}",
                why="verl reads it on every node, after Ray has started",
                todo="check the path; on a cluster it must be on a file system that all nodes share",
            )
    for key, path in facts.missing_paths:
        yield Finding(id="file-missing", key=key, what=f"there is no file {path}", todo="check the path")
    if not facts.train:
        yield Finding(
            id="file-missing", key="data.train_files", what="no training file is named", todo="name one"
        )


def rows(s: Settings, facts: Facts) -> Iterator[Finding]:
    """The findings of ``verlock data check``, and batches that no file can fill."""
    for file in (*facts.train, *facts.val):
        if file.checked is not None:
            # Without a model here there is nothing to render; the run does it.
            found = (finding for finding in file.checked.findings if finding.id != "data-not-rendered")
            # verl reads it, so the command is not wrong; what its rows hold is not known.
            yield from (replace(f, level="note") if f.id == file_kind.NOT_CHECKED else f for f in found)
    counted = [file.checked.rows for file in facts.train if file.checked and file.checked.rows]
    total, batch = sum(counted), s.number("data.train_batch_size")
    if counted and len(counted) == len(facts.train) and total < batch:
        yield Finding(
            id="too-few-rows",
            key="data.train_batch_size",
            what=f"{total} rows do not fill a batch of {batch}",
            why="the loader drops the last, incomplete batch: Train dataloader is empty!",
            todo=f"set data.train_batch_size={total} or less",
        )


def overlong(s: Settings, facts: Facts) -> Iterator[Finding]:
    """A whole file of long prompts: without filter verl stops at the first, with it nothing may be left."""
    limit = s.some("data.max_prompt_length")
    for file in facts.train:
        lengths = file.checked.lengths if file.checked else None
        if lengths is None or limit is None or lengths.longest <= limit:
            continue
        empty = lengths.shortest > limit
        if empty or not s.flag("data.filter_overlong_prompts"):
            yield Finding(
                id="prompts-overlong",
                key="data.max_prompt_length",
                what=f"{file.given}: prompts of {lengths.shortest} to {lengths.longest} tokens",
                why="num_samples=0: the filter drops every row"
                if empty
                else "data.truncation=error stops at the first longer one",
                todo=f"set data.max_prompt_length={lengths.longest}"
                + ("" if empty else ", or data.filter_overlong_prompts=True"),
            )


def sources(s: Settings, facts: Facts) -> Iterator[Finding]:
    """verl's own rules go by data_source; an unknown one raises at the first response."""
    if facts.reward is not None or s.flag("reward.reward_model.enable"):
        return
    for file in (*facts.train, *facts.val):
        for source in file.checked.data_sources if file.checked else {}:
            if facts.names.sources.get(source) is False:
                yield Finding(
                    id="data-source-unknown",
                    key=f"{file.given}:data_source",
                    what=f"verl has no reward rule for data_source {source!r}",
                    why="NotImplementedError: Reward function is not implemented, at the first response",
                    todo="use one that verl knows (openai/gsm8k), or set reward.custom_reward_function.path",
                )


def model(s: Settings, facts: Facts) -> Iterator[Finding]:
    """A model that is neither here nor on a hub, or one that cannot write a prompt."""
    key = "actor_rollout_ref.model.path"
    if facts.model is None:
        return
    if facts.model.kind == "missing":
        yield Finding(
            id="model-missing",
            key=key,
            what=f"there is no model folder {facts.model.given}",
            why="it is neither a folder here nor a name such as Qwen/Qwen3-8B",
            todo="check the path",
        )
    elif facts.model.has_template is False and s.get("actor_rollout_ref.model.custom_chat_template") is None:
        yield Finding(
            id="model-no-template",
            key=key,
            what="the model's tokenizer has no chat template",
            why="verl turns chat messages into a prompt with it; base models often have none",
            todo="use an instruct model, or set actor_rollout_ref.model.custom_chat_template",
        )


def reward(_s: Settings, facts: Facts) -> Iterator[Finding]:
    """The function must be there, and take what verl passes by name."""
    if facts.reward is not None:
        section = "reward.custom_reward_function"
        yield from reward_source.judge(facts.reward, path_key=f"{section}.path", name_key=f"{section}.name")


def legacy(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """Old places that the tree still has and ``main_ppo`` no longer moves to the new ones."""
    verl = verls.here()
    for old in () if verls.moves_rewards(verl) else _OLD:
        if s.get(old) is not None and s.get(old) is not False:
            yield Finding(
                id="unread-key",
                key=old,
                what=f"{old} is set, and nothing reads it",
                why=f"verl {verl} composes the old key; only its fully asynchronous trainer still moves it",
                todo=f"set {verls.moved_reward(old)} in its place",
            )
    if s.get("data.val_batch_size") is not None:
        yield Finding(
            id="deprecated-key",
            level="warning",
            key="data.val_batch_size",
            what="data.val_batch_size is deprecated",
            why="the whole validation set goes to the engine at once",
            todo="remove it",
        )
    if s.get("trainer.use_v1") is False:
        yield Finding(
            id="deprecated-key",
            level="warning",
            key="trainer.use_v1",
            what="the v0 trainer is deprecated",
            why="verl says that it will be removed",
            todo="remove trainer.use_v1",
        )


RULES = (present, rows, overlong, sources, model, reward, legacy)
