"""Who is where in which phase, by hand-made numbers; the verdict, and the keys that are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.errors import MemoryPlanError
from harness.ladder import compose, overrides
from harness.ladder.memory import fit, settings
from harness.ladder.memory.command import _OWN, machine
from harness.ladder.memory.phases import Machine, Phase, Traced, phases
from harness.ladder.memory.trace import RoleBytes, RolloutBytes
from harness.profiles import load

MIB, GIB = 1 << 20, 1 << 30
GPU = Machine(device=24 * GIB, host=64 * GIB)
# Powers of ten: a sum says of itself what is in it.
ACTOR = RoleBytes(
    parameters=1,
    full=1,
    largest=0,
    shard=1_000,
    pinned=2_000,
    unit=0,
    infer=10,
    infer_entropy=20,
    train=500,
    gradients=50,
)
CRITIC = replace(ACTOR, shard=10_000, pinned=20_000, infer=30, train=70_000, gradients=0)
READ = replace(ACTOR, shard=3, pinned=4, unit=1, infer=2, train=0)
ROLLOUT = RolloutBytes(weights=100_000, generate=1_000_000, cache=0)
TRACED = Traced(actor=ACTOR, critic=CRITIC, reference=READ, rollout=ROLLOUT, tied=True)


def read(profile: str, *words: str) -> settings.Settings:
    return settings.read(compose.compose_config(overrides.words(load(profile), _OWN, words)))


def table(
    chosen: settings.Settings, traced: Traced = TRACED, where: Machine = GPU
) -> dict[str, tuple[int, int]]:
    return {one.name: (one.device, one.host) for one in phases(chosen, traced, where)}


def test_with_nothing_offloaded_all_of_it_lies_on_the_device() -> None:
    found = table(settings.offloaded(read("p40"), on=False))
    resting = 3 * 1_000 + 3 * 10_000  # weights and two moments of actor and critic
    asleep = 4 + 100_000  # the reference's weights and the rollout's, on the host
    assert found["rollout"] == (resting + 1_100_000, 4)
    assert found["old log-probabilities"] == (resting + 20, asleep)
    assert found["reference log-probabilities"] == (resting + 1 + 2, asleep)
    assert found["values"] == (resting + 30, asleep)
    assert found["critic update"] == (resting + 70_000, asleep)
    assert found["actor update"] == (resting + 50 + 1_000, asleep)  # the optimiser's step is the fuller part
    assert found["weights to rollout"] == (resting + 100_000, 4)


def test_with_all_offloaded_only_who_works_is_on_the_device() -> None:
    found = table(settings.offloaded(read("p40"), on=True))
    actor, critic, rest = 3 * 2_000, 3 * 20_000, 4
    assert found["rollout"] == (1_100_000, actor + critic + rest)
    assert found["old log-probabilities"] == (1_000 + 20, 2 * 2_000 + critic + rest + 100_000)
    assert found["values"] == (10_000 + 30, 2 * 20_000 + actor + rest + 100_000)
    assert found["critic update"] == (3 * 10_000 + 70_000, actor + rest + 100_000)
    assert found["actor update"] == (3 * 1_000 + 50 + 1_000, critic + rest + 100_000)


def test_where_memory_is_shared_offloading_moves_nothing() -> None:
    here = machine(load("cpu"))
    assert here.device is None
    on, off = (table(settings.offloaded(read("cpu"), on=on), where=here) for on in (True, False))
    assert on == off
    assert on["actor update"][0] == 3 * 1_000 + 3 * 10_000 + 500 + 3 + 100_000


def test_ranks_of_a_node_share_its_host_memory() -> None:
    eight = table(settings.offloaded(read("p40", "trainer.n_gpus_per_node=8"), on=True))
    assert eight["rollout"][1] == 8 * (3 * 2_000 + 3 * 20_000 + 4)
    assert eight["start"][1] == 8 * (1 + 3 * 2_000 + 3 * 20_000 + 4)
    untied = table(read("p40", "trainer.n_gpus_per_node=8"), replace(TRACED, tied=False))
    assert untied["start"][1] == 1 + 8 * (3 * 2_000 + 3 * 20_000 + 4)


def test_vllm_takes_its_share_while_it_is_awake() -> None:
    chosen = read("a100")
    found = table(chosen, replace(TRACED, rollout=None))
    share = int(0.4 * GPU.device) if GPU.device else 0
    resting = 3 * 1_000 + 3 * 10_000
    assert found["rollout"][0] == resting + share
    assert found["values"][0] == resting + 30
    assert found["weights to rollout"][0] == resting + share + chosen.rollout.bucket


def test_the_settings_are_those_of_the_profile_and_the_words() -> None:
    p40 = read("p40")
    assert (p40.world, p40.prompt, p40.response) == (1, 512, 512)
    assert (p40.actor.micro, p40.actor.accumulates, p40.actor.param_offload) == (1, False, True)
    assert p40.actor.dtypes == settings.Dtypes(weights="float32", compute="float32", reduce="float32")
    assert p40.rollout.rows == 64
    assert p40.assumed == ()
    assert read("cpu").assumed[0] == "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1"
    assert read("p40", "algorithm.adv_estimator=grpo").critic is None
    assert read("p40", "actor_rollout_ref.actor.use_kl_loss=false").reference is None
    more = read("p40", "data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8")
    assert (more.actor.micro, more.actor.accumulates) == (1, True)


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.strategy"),
        ("critic.strategy=fsdp", "critic.strategy"),
        ("actor_rollout_ref.actor.use_dynamic_bsz=true", "use_dynamic_bsz"),
        ("actor_rollout_ref.model.lora_rank=8", "lora_rank"),
        ("actor_rollout_ref.model.use_remove_padding=true", "use_remove_padding"),
        ("actor_rollout_ref.model.use_liger=true", "use_liger"),
        ("actor_rollout_ref.model.use_fused_kernels=true", "use_fused_kernels"),
        ("actor_rollout_ref.model.enable_activation_offload=true", "enable_activation_offload"),
        ("critic.fsdp.offload_policy=true", "critic.fsdp.offload_policy"),
        ("actor_rollout_ref.actor.fsdp_config.fsdp_size=2", "fsdp_size"),
        ("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2", "ulysses"),
        ("actor_rollout_ref.actor.optim.optimizer=SGD", "actor_rollout_ref.actor.optim.optimizer"),
    ],
)
def test_what_is_not_traced_is_refused(word: str, key: str) -> None:
    with pytest.raises(MemoryPlanError, match=key):
        read("p40", word)


def phase(device: int, host: int = 0) -> Phase:
    return Phase(name="actor update", active=("actor",), device=device, host=host)


@pytest.mark.parametrize(
    ("device", "host", "fits"),
    [(23 * GIB, 0, True), (23 * GIB + 1, 0, False), (0, 62 * GIB, True), (0, 62 * GIB + 1, False)],
)
def test_a_reserve_is_kept_free(device: int, host: int, fits: bool) -> None:
    assert fit.judge([phase(1), phase(device, host)], GPU, ranks=1).fits is fits


def test_on_shared_memory_all_ranks_count() -> None:
    shared = Machine(device=None, host=16 * GIB)
    assert fit.judge([phase(7 * GIB)], shared, ranks=2).fits
    assert not fit.judge([phase(7 * GIB + 1)], shared, ranks=2).fits


def advice(saves: dict[str, int], over: int) -> tuple[str, ...]:
    """What is advised where each key saves so many bytes; the planner is the real one's stand-in."""
    chosen = settings.offloaded(read("p40"), on=False)

    def replan(words: Sequence[str]) -> tuple[settings.Settings, list[Phase]]:
        saved = sum(saves.get(word.partition("=")[0].rpartition(".")[2], 0) for word in words)
        return chosen, [phase(23 * GIB + over - saved)]

    _, first = replan(())
    return fit.advice(replan, GPU, chosen, fit.judge(first, GPU, ranks=1))


def test_the_first_key_that_is_enough_alone_is_advised() -> None:
    assert advice({"optimizer_offload": MIB, "max_response_length": GIB}, MIB) == (
        "critic.fsdp.optimizer_offload=true",
    )
    assert advice({"max_response_length": MIB}, MIB) == ("data.max_response_length=256",)


def test_several_keys_are_put_together_where_none_is_enough() -> None:
    assert advice({"optimizer_offload": MIB, "max_num_seqs": MIB}, 3 * MIB) == (
        "critic.fsdp.optimizer_offload=true",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=true",
        "actor_rollout_ref.rollout.max_num_seqs=32",
    )


def test_nothing_is_advised_that_does_not_help() -> None:
    assert advice({}, MIB) == ()
    assert advice({"max_num_seqs": MIB}, GIB) == ()
