"""Numbers that must fit each other: batches, ranks, tokens, lengths."""

from __future__ import annotations

from collections.abc import Iterator

from harness.data.finding import Finding
from harness.ladder.preflight.facts import Facts
from harness.ladder.preflight.settings import ACTOR, REF, ROLLOUT, Settings


def positive(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """Counts of which none may be zero or less."""
    for key in (
        "trainer.n_gpus_per_node",
        "trainer.nnodes",
        "data.train_batch_size",
        "data.max_prompt_length",
        "data.max_response_length",
        f"{ROLLOUT}.n",
        f"{ROLLOUT}.tensor_model_parallel_size",
        f"{ACTOR}.ppo_mini_batch_size",
        "trainer.total_epochs",
    ):
        value = s.some(key)
        if value is not None and value < 1:
            yield Finding(id="not-positive", key=key, what=f"{key} is {value}", todo="give a number above 0")


def mini_batches(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """``ActorConfig.validate`` and ``CriticConfig.validate``, which say nothing with dynamic batches."""
    train = s.number("data.train_batch_size")
    for section in (ACTOR, *(["critic"] if s.critic else [])):
        mini = s.some(f"{section}.ppo_mini_batch_size")
        if mini is not None and 0 < train < mini:
            yield Finding(
                id="mini-batch",
                key=f"{section}.ppo_mini_batch_size",
                what=f"a mini-batch of {mini} prompts does not fit into a batch of {train}",
                why="verl needs data.train_batch_size >= ppo_mini_batch_size (its default is 256)",
                todo=f"set {section}.ppo_mini_batch_size={train}, or raise data.train_batch_size",
            )


def divisible(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """``validate_config``, and ``engine_workers.train_mini_batch`` after the first rollout."""
    if not s.fsdp:
        return
    n, train = max(s.number(f"{ROLLOUT}.n", 1), 1), s.number("data.train_batch_size")
    if train > 0 and not s.flag(f"{ACTOR}.use_dynamic_bsz") and (train * n) % s.world:
        yield Finding(
            id="batch-divisible",
            key="data.train_batch_size",
            what=f"{train} prompts of {n} responses ({train * n}) cannot be shared by {s.world} GPUs",
            why="validate_config: real_train_batch_size must be divisible by the number of GPUs",
            todo=f"make data.train_batch_size * rollout.n a multiple of {s.world}",
        )
    for section in (ACTOR, *(["critic"] if s.critic else [])):
        ranks = max(s.world // s.ulysses(section), 1)
        mini = s.number(f"{section}.ppo_mini_batch_size") * n
        if mini and mini % ranks:
            yield Finding(
                id="mini-batch-divisible",
                key=f"{section}.ppo_mini_batch_size",
                what=f"a mini-batch of {mini} responses cannot be shared by {ranks} data-parallel ranks",
                why="verl asserts it in engine_workers.py, after models were loaded and responses generated",
                todo=f"make {section}.ppo_mini_batch_size * rollout.n a multiple of {ranks}",
            )


def micro_batches(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """``ActorConfig.__post_init__``, ``validate_config``, and the assertions of ``engine_workers.py``."""
    wanted = [(ACTOR, "ppo_micro_batch_size", f"{ACTOR}.use_dynamic_bsz")]
    wanted.append((ROLLOUT, "log_prob_micro_batch_size", f"{ROLLOUT}.log_prob_use_dynamic_bsz"))
    if s.reference:
        wanted.append((REF, "log_prob_micro_batch_size", f"{REF}.log_prob_use_dynamic_bsz"))
    if s.critic:
        wanted.append(("critic", "ppo_micro_batch_size", "critic.use_dynamic_bsz"))
    for section, name, dynamic in wanted:
        old, new = s.get(f"{section}.{name}"), s.get(f"{section}.{name}_per_gpu")
        if s.flag(dynamic):
            continue
        if old is None and new is None:
            yield Finding(
                id="micro-batch-unset",
                key=f"{section}.{name}_per_gpu",
                what=f"{section}.{name}_per_gpu is not set",
                why=f"its default is null, and {dynamic} is off",
                todo=f"set {section}.{name}_per_gpu to what a GPU holds at once, or {dynamic}=True",
            )
        elif old is not None and new is not None:
            yield Finding(
                id="micro-batch-twice",
                key=f"{section}.{name}",
                what=f"both {name} (deprecated) and {name}_per_gpu are set",
                why="verl refuses both at once",
                todo=f"remove {section}.{name}",
            )
        elif new is None:
            yield from _deprecated_micro(s, section, name)
        elif isinstance(new, int) and not isinstance(new, bool) and new < 1:
            yield Finding(
                id="not-positive",
                key=f"{section}.{name}_per_gpu",
                what=f"{section}.{name}_per_gpu is {new}",
                todo="give a number above 0",
            )
    yield from _same_mode(s)


def _deprecated_micro(s: Settings, section: str, name: str) -> Iterator[Finding]:
    """The old key counts all GPUs together, and engine workers read only the new one."""
    key, total = f"{section}.{name}", s.number(f"{section}.{name}")
    if total < s.world:
        yield Finding(
            id="micro-batch-small",
            key=key,
            what=f"{key}={total} for {s.world} GPUs leaves none for each",
            why="it counts all GPUs together, and is divided by their number",
            todo=f"set {key}_per_gpu=1 in its place",
        )
    else:
        yield Finding(
            id="deprecated-key",
            key=key,
            what=f"{key} is deprecated: the engines of verl 0.9.1 read {name}_per_gpu",
            why="they assert that it is set (engine_workers.py), after Ray has started",
            todo=f"set {key}_per_gpu={max(total // s.world, 1)} in its place",
        )


def _same_mode(s: Settings) -> Iterator[Finding]:
    """One engine serves both: ``assert actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz``."""
    actor, rollout = s.flag(f"{ACTOR}.use_dynamic_bsz"), s.flag(f"{ROLLOUT}.log_prob_use_dynamic_bsz")
    if actor != rollout:
        yield Finding(
            id="dynamic-differs",
            key=f"{ROLLOUT}.log_prob_use_dynamic_bsz",
            what=f"actor.use_dynamic_bsz is {actor}, rollout.log_prob_use_dynamic_bsz is {rollout}",
            why="verl asserts that they are equal when the worker is built (engine_workers.py:616)",
            todo="give both the same value",
        )


def token_budgets(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """``seqlen_balancing.py``: max_token_len must be greater than the sequence length."""
    budgets = [(ACTOR, "ppo_max_token_len_per_gpu", "use_dynamic_bsz", ACTOR)]
    budgets.append((ROLLOUT, "log_prob_max_token_len_per_gpu", "log_prob_use_dynamic_bsz", ACTOR))
    if s.reference:
        budgets.append((REF, "log_prob_max_token_len_per_gpu", "log_prob_use_dynamic_bsz", REF))
    if s.critic:
        budgets.append(("critic", "ppo_max_token_len_per_gpu", "use_dynamic_bsz", "critic"))
    for section, name, dynamic, engine in budgets:
        budget, parts = s.some(f"{section}.{name}"), s.ulysses(engine)
        if s.flag(f"{section}.{dynamic}") and budget is not None and budget * parts < s.tokens:
            yield Finding(
                id="token-budget",
                key=f"{section}.{name}",
                what=f"{budget * parts} tokens are less than one sequence of {s.tokens}",
                why="prompt and response must fit at once; verl asserts it at the first long response",
                todo=f"set {section}.{name} to {-(-s.tokens // parts)} or more",
            )


def parallel(s: Settings, facts: Facts) -> Iterator[Finding]:
    """Ranks that a model is split over must divide those that there are, and its heads."""
    split = 1
    for name in ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size"):
        split *= max(s.number(f"{ROLLOUT}.{name}", 1), 1)
    if s.world % split:
        yield Finding(
            id="rollout-parallel",
            key=f"{ROLLOUT}.tensor_model_parallel_size",
            what=f"a rollout over {split} GPUs does not divide the {s.world} that there are",
            why="engine_workers.py asserts that they are divisible; the default of tp is 2",
            todo=f"set {ROLLOUT}.tensor_model_parallel_size to a divisor of {s.world}",
        )
    heads = facts.model.heads if facts.model else None
    for section in (ACTOR, *([REF] if s.reference else []), *(["critic"] if s.critic else [])):
        yield from _ulysses(s, section, heads)
    tensor = max(s.number(f"{ROLLOUT}.tensor_model_parallel_size", 1), 1)
    if heads and heads % tensor:
        yield Finding(
            id="heads-divisible",
            key=f"{ROLLOUT}.tensor_model_parallel_size",
            what=f"the model's {heads} attention heads cannot be split over {tensor} GPUs",
            why="the inference engine refuses it when it loads the model",
            todo=f"choose a divisor of {heads}",
        )


def _ulysses(s: Settings, section: str, heads: int | None) -> Iterator[Finding]:
    size = s.ulysses(section)
    engine = "fsdp" if section == "critic" else "fsdp_config"
    key = f"{section}.{engine}.ulysses_sequence_parallel_size"
    if size > 1 and s.world % size:
        yield Finding(
            id="sequence-parallel",
            key=key,
            what=f"a sequence over {size} GPUs does not divide the {s.world} that there are",
            why="the device mesh of data-parallel and sequence-parallel ranks cannot be built",
            todo=f"choose a divisor of {s.world}",
        )
    if size > 1 and heads and heads % size:
        yield Finding(
            id="heads-divisible",
            key=key,
            what=f"the model's {heads} attention heads cannot be split over {size} GPUs",
            why="Ulysses gives each rank a share of the heads",
            todo=f"choose a divisor of {heads}",
        )
    model = "critic.model" if section == "critic" else "actor_rollout_ref.model"
    if size > 1 and s.get(f"{model}.use_remove_padding") is False:
        yield Finding(
            id="sequence-parallel-padding",
            key=f"{model}.use_remove_padding",
            what="sequence parallelism needs use_remove_padding",
            why="verl raises it when the engine is built (engine/fsdp/transformer_impl.py:148)",
            todo=f"set {model}.use_remove_padding=True",
        )


def lengths(s: Settings, facts: Facts) -> Iterator[Finding]:
    """What the rollout engine and the model can hold."""
    limit = s.some(f"{ROLLOUT}.max_model_len")
    if limit is not None and limit < s.tokens:
        yield Finding(
            id="model-length",
            key=f"{ROLLOUT}.max_model_len",
            what=f"{limit} tokens are less than prompt and response ({s.tokens})",
            why="the rollout engine cuts or refuses longer ones",
            todo=f"set it to {s.tokens} or more, or to null",
        )
    positions = facts.model.positions if facts.model else None
    if positions is not None and positions < s.tokens:
        yield Finding(
            id="model-positions",
            key="data.max_response_length",
            what=f"the model has {positions} positions, prompt and response need {s.tokens}",
            why="beyond them it was never trained, and engines refuse it",
            todo=f"make data.max_prompt_length + data.max_response_length at most {positions}",
        )
    yield from _prefill(s, limit or positions or s.tokens)


def _prefill(s: Settings, longest: int) -> Iterator[Finding]:
    budget = s.some(f"{ROLLOUT}.max_num_batched_tokens")
    chunked = s.get(f"{ROLLOUT}.enable_chunked_prefill")
    if budget is not None and budget < longest and chunked is False:
        yield Finding(
            id="batched-tokens",
            key=f"{ROLLOUT}.max_num_batched_tokens",
            what=f"{budget} tokens a batch are less than the longest sequence of {longest}",
            why="without chunked prefill vLLM 0.24 and newer refuse it; max_model_len comes from the model",
            todo=f"set {ROLLOUT}.max_num_batched_tokens={longest}, or a smaller max_model_len",
        )
    elif budget is not None and budget < s.tokens:
        yield Finding(
            id="batched-tokens",
            level="warning",
            key=f"{ROLLOUT}.max_num_batched_tokens",
            what=f"{budget} tokens a batch are less than one sequence of {s.tokens}",
            why="verl 0.9.1 raises it itself for vLLM; older versions and engines refuse it",
            todo=f"set {ROLLOUT}.max_num_batched_tokens={s.tokens}",
        )


def groups(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """Estimators that compare a prompt's responses need several."""
    name, n = s.text("algorithm.adv_estimator"), s.number(f"{ROLLOUT}.n", 1)
    if name in {"grpo", "rloo", "grpo_passk", "gdpo", "rloo_vectorized", "grpo_vectorized"} and n == 1:
        yield Finding(
            id="group-of-one",
            level="warning",
            key=f"{ROLLOUT}.n",
            what=f"{name} compares the responses to a prompt, and there is one",
            why="with one response the advantage is its raw reward (grpo) or nothing (rloo)",
            todo=f"set {ROLLOUT}.n to 4 or more",
        )


RULES = (
    positive,
    mini_batches,
    divisible,
    micro_batches,
    token_budgets,
    parallel,
    lengths,
    groups,
)
