"""A user's configuration made small enough for this machine: each change and why.

Pure. Only what must differ differs: the user's algorithm, losses, learning rates, reward and rows stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.adapt import verls
from harness.ladder.preflight.settings import ACTOR, REF, ROLLOUT, Settings
from harness.ladder.preflight.stand_ins import MERGE, Stand
from harness.ladder.preflight.tree import key_of
from harness.profiles.hydra import word
from harness.profiles.model import Profile

PROMPTS = 4
RESPONSES = 8
RESPONSE_TOKENS = 16
_DEFAULT_LOOPS = frozenset({None, "single_turn_agent"})


@dataclass(frozen=True, kw_only=True)
class Change:
    """One key that differs from the user's.

    ``layer`` says that a lower layer of overrides sets it, ``same`` that it sets the user's own value there.
    """

    key: str
    old: Any
    new: Any
    why: str
    layer: bool = False
    same: bool = False

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"key": self.key, "old": self.old, "new": self.new, "why": self.why}


def changes(s: Settings, stand: Stand, profile: Profile, *, steps: int) -> list[Change]:
    """All changes, each key once; the profile's own come last and win over none of the others."""
    found: dict[str, Change] = {}
    for group in (
        _inputs(s, stand),
        _sizes(s, stand),
        _one_device(s, profile.software.verl),
        _engines(s),
        _course(s, steps),
        _profile(s, profile),
    ):
        for change in group:
            # Without a critic nobody reads its section.
            if s.get(change.key) != change.new and (s.critic or not change.key.startswith("critic.")):
                found.setdefault(change.key, change)
    return list(found.values())


def _inputs(s: Settings, stand: Stand) -> Iterator[Change]:
    what = "not on this machine: a tiny one stands in"
    for key in ("actor_rollout_ref.model.path", "critic.model.path"):
        yield _layer(s, key, "the tiny model", what) if stand.model else _same(s, key)
    rows = "stand-in rows" if stand.data else f"the first {stand.rows} rows"
    for key in ("data.train_files", "data.val_files"):
        yield _layer(s, key, rows, "enough for the steps, and no more to read")
    for key in ("reward.custom_reward_function.path", "reward.custom_reward_function.name"):
        if s.get(key) is not None or stand.reward:
            yield _layer(s, key, "mock", f"in place of {stand.reward}") if stand.reward else _same(s, key)
    if s.flag("reward.reward_model.enable"):
        yield _set(
            s, "reward.reward_model.enable", False, "a reward model needs a GPU and an inference engine"
        )
    if stand.model:
        tokenizer = "the model that stands in has its own tokenizer"
        for part in ("tokenizer_path", "hf_config_path"):
            if s.get(f"actor_rollout_ref.model.{part}") != s.get("actor_rollout_ref.model.path"):
                yield _set(s, f"actor_rollout_ref.model.{part}", None, tokenizer)
        for part in ("lora_adapter_path", "external_lib", "custom_chat_template"):
            yield _set(s, f"actor_rollout_ref.model.{part}", None, "it belongs to the model that is not here")


def _sizes(s: Settings, stand: Stand) -> Iterator[Change]:
    """A few rows: mini-batches keep their number, up to two, and each is one micro-batch."""
    train, mini = s.number("data.train_batch_size", 1), s.number(f"{ACTOR}.ppo_mini_batch_size", 1)
    prompts = min(PROMPTS, train)
    small = max(prompts // 2, 1) if mini < train and prompts > 1 else prompts
    n = min(s.number(f"{ROLLOUT}.n", 1), RESPONSES)
    few = "few rows a step: a smoke run"
    yield _set(s, "data.train_batch_size", prompts, few)
    if s.some("data.gen_batch_size") is not None:
        yield _set(s, "data.gen_batch_size", prompts, "as the batch")
    yield _set(s, f"{ROLLOUT}.n", n, few)
    yield _set(s, f"{ACTOR}.ppo_mini_batch_size", small, "one mini-batch stays one, several become two")
    if s.critic:
        yield _set(s, "critic.ppo_mini_batch_size", small, "as the actor's")
    yield _set(s, "data.max_prompt_length", stand.prompt, "the longest of the chosen rows")
    yield _set(s, "data.max_response_length", RESPONSE_TOKENS, "generation takes most of the time")
    for key, new in (("prompt_length", stand.prompt), ("response_length", RESPONSE_TOKENS)):
        yield _set(s, f"{ROLLOUT}.{key}", new, "as the data's")
    yield from _micro(s, prompts * n, small * n)
    yield from _budgets(s, stand.prompt + RESPONSE_TOKENS)
    if s.some(f"{ROLLOUT}.max_model_len") is not None:
        yield _set(s, f"{ROLLOUT}.max_model_len", None, "the engine's; the stand-in has no such limit")


def _micro(s: Settings, responses: int, small: int) -> Iterator[Change]:
    keys = [
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", small),
        (f"{REF}.log_prob_micro_batch_size_per_gpu", responses),
    ]
    keys += [(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", responses)]
    keys += [("critic.ppo_micro_batch_size_per_gpu", small)] if s.critic else []
    for key, most in keys:
        value = s.some(key)
        if value is not None and value > most:
            yield _set(s, key, most, "no more than there are")
        elif value is not None and most % value:
            yield _set(s, key, most, f"{value} does not divide the {most} that there are")


def _budgets(s: Settings, tokens: int) -> Iterator[Change]:
    for section in (ACTOR, ROLLOUT, REF, "critic"):
        for name in ("ppo_max_token_len_per_gpu", "log_prob_max_token_len_per_gpu"):
            budget = s.some(f"{section}.{name}")
            if budget is not None and budget < tokens:
                yield _set(s, f"{section}.{name}", tokens, "one sequence of the stand-in must fit")


def _one_device(s: Settings, verl: str) -> Iterator[Change]:
    one = "one device here"
    for key in (
        f"{ROLLOUT}.tensor_model_parallel_size",
        f"{ROLLOUT}.data_parallel_size",
        f"{ROLLOUT}.expert_parallel_size",
        f"{ROLLOUT}.pipeline_model_parallel_size",
    ):
        yield _set(s, key, 1, one)
    for section in (ACTOR, REF, "critic"):
        newest = f"{section}.fsdp" if section == "critic" else f"{section}.fsdp_config"
        engine = verls.at(newest, verl) or newest
        if s.get(engine) is None:
            continue
        for key in (f"{engine}.ulysses_sequence_parallel_size", f"{section}.ulysses_sequence_parallel_size"):
            if s.get(key) is not None:
                yield _set(s, key, 1, one)
        yield _set(s, f"{engine}.fsdp_size", -1, one)
        for name in ("param_offload", "optimizer_offload", "offload_policy"):
            if s.get(f"{engine}.{name}"):
                yield _set(s, f"{engine}.{name}", False, "the memory here is the CPU's already")


def _engines(s: Settings) -> Iterator[Change]:
    """What only a GPU, another engine or another environment has."""
    yield _layer(s, f"{ROLLOUT}.name", "hf", "the harness's own rollout, in place of an inference engine")
    if s.text(f"{ROLLOUT}.agent.default_agent_loop") in _DEFAULT_LOOPS:
        why = "the same single turn, with a seed for each request"
        yield _layer(s, f"{ROLLOUT}.agent.default_agent_loop", "verlock_single_turn", why)
        yield _layer(s, f"{ROLLOUT}.agent.agent_loop_config_path", "the harness's", why)
    yield _layer(s, f"{ROLLOUT}.calculate_log_probs", True, "so that rollout and trainer can be compared")
    for model in ("actor_rollout_ref.model", "critic.model"):
        if s.get(f"{model}.use_fused_kernels"):
            yield _set(s, f"{model}.use_fused_kernels", False, "they are written in Triton")
        if s.get(f"{model}.enable_activation_offload"):
            yield _set(s, f"{model}.enable_activation_offload", False, "it pins memory for an accelerator")
    if s.flag(MERGE):
        # verl 0.9.1, transformer_impl.py, _merged_lora_per_tensor_param: whatever the model's dtype is.
        yield _set(s, MERGE, False, "verl rounds merged weights to bf16, and nothing could be compared")
    if s.get(f"{ACTOR}.use_fused_kernels"):
        yield _set(s, f"{ACTOR}.use_fused_kernels", False, "they are written in Triton")
    if s.get("ray_kwargs.ray_init.runtime_env.py_executable") is not None:
        why = "workers run in the profile's environment"
        yield _set(s, "ray_kwargs.ray_init.runtime_env.py_executable", None, why)
    yield from _servers(s)


def _servers(s: Settings) -> Iterator[Change]:
    """Parts that other machines or a trained model would answer."""
    if s.flag("distillation.enabled"):
        yield _set(
            s, "distillation.enabled", False, "teachers need GPUs and an inference engine of their own"
        )
    if s.flag("algorithm.filter_groups.enable"):
        yield _set(s, "algorithm.filter_groups.enable", False, "an untrained model's groups are all alike")
    if s.get("reward.sandbox_fusion.url") is not None:
        yield _set(s, "reward.sandbox_fusion.url", None, "nothing is sent to a network")
    if s.get("global_profiler.steps") is not None:
        yield _set(s, "global_profiler.steps", None, "there is no GPU to profile")
    if s.get("trainer.use_v1") is True and s.text("trainer.v1.trainer_mode") not in {None, "sync"}:
        yield _set(s, "trainer.v1.trainer_mode", "sync", "the others need GPUs for the rollout alone")


def _course(s: Settings, steps: int) -> Iterator[Change]:
    """How long it runs, and nothing written outside the run's own folder."""
    yield _layer(s, "trainer.total_training_steps", steps, "a smoke run")
    yield _layer(s, "trainer.total_epochs", 1000, "the steps end it")
    yield _layer(s, "trainer.test_freq", -1, "the ladder asks for training")
    yield _layer(s, "trainer.save_freq", -1, "a checkpoint is another rung's")
    for key in ("trainer.rollout_data_dir", "trainer.validation_data_dir", "trainer.default_hdfs_dir"):
        if s.get(key) is not None:
            yield _set(s, key, None, "nothing is written outside the run's folder")
    if s.get("trainer.default_local_dir") is not None:
        yield _set(s, "trainer.default_local_dir", "checkpoints", "in the run's folder")
    if s.get("trainer.resume_from_path") is not None:
        yield _set(s, "trainer.resume_from_path", None, "a smoke run starts anew")
    for section in (ACTOR, *(["critic"] if s.critic else [])):
        for name in ("lr_warmup_steps", "lr_warmup_steps_ratio"):
            value = s.get(f"{section}.optim.{name}")
            if isinstance(value, int | float) and value > 0:
                yield _set(s, f"{section}.optim.{name}", 0, "with a warm-up the first steps change nothing")
    if s.get("trainer.val_only") is True:
        yield _set(s, "trainer.val_only", False, "the ladder asks for training")


def _profile(s: Settings, profile: Profile) -> Iterator[Change]:
    verl = profile.software.verl
    settings = verls.written({**profile.run.overrides, **profile.run.on_cpu}, verl)
    given = {key: (setting.value, setting.reason) for key, setting in settings.items()}
    given |= {extra.key: (extra.value, extra.reason) for extra in verls.extras(verl, on_cpu=True)}
    for key, (value, reason) in given.items():
        bare = key.lstrip("+")
        if s.get(bare) != value:
            yield Change(key=bare, old=s.get(bare), new=value, why=reason, layer=True)


def _set(s: Settings, key: str, new: Any, why: str) -> Change:
    return Change(key=key, old=s.get(key), new=new, why=why)


def _layer(s: Settings, key: str, new: Any, why: str) -> Change:
    return Change(key=key, old=s.get(key), new=new, why=why, layer=True)


def _same(s: Settings, key: str) -> Change:
    return Change(key=key, old=s.get(key), new="the same", why="given to the rung", layer=True, same=True)


def words(
    given: tuple[str, ...],
    config: Mapping[str, Any],
    made: list[Change],
    rung: Mapping[str, object],
    profile: Profile,
) -> tuple[str, ...]:
    """The overrides of the run: the user's but for what changed, also where a rung has values of its own."""
    s = Settings(config)
    changed = {change.key for change in made}
    kept = [text for text in given if not _touched(key_of(text), changed)]
    set_here = {key_of(text) for text in kept} | changed
    back = [word(f"++{key}", s.get(key)) for key in map(_bare, rung) if key not in set_here]
    new = [word(f"++{change.key}", change.new) for change in made if not change.layer]
    ours = verls.settings(profile.overrides(rehearse=True), profile.software.verl, on_cpu=True)
    own = {_bare(key) for key in ours}
    return (*[text for text in kept if key_of(text) not in own], *back, *new)


def _bare(key: str) -> str:
    return key.lstrip("+")


def _touched(key: str, changed: set[str]) -> bool:
    """Whether a change replaces the word, or a section that the word sets as a whole."""
    return key in changed or any(other.startswith(f"{key}.") for other in changed)
