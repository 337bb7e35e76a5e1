"""``verlock plan memory`` inside an environment: compose, trace, judge, and say so."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from harness.adapt.settings import Settings as PluginSettings
from harness.console import Output
from harness.errors import MemoryPlanError, OverrideError, Problem, VerlockError
from harness.ladder import compose, overrides
from harness.ladder.memory import fit, models, settings
from harness.ladder.memory import words as word_check
from harness.ladder.memory.phases import Machine, Phase, Traced, phases
from harness.profiles.load import load
from harness.profiles.model import Profile

# The ladder's runs have a KL loss, and so a reference policy; verl's default has not.
_OWN = {"actor_rollout_ref.actor.use_kl_loss": True}
_GIB = 1 << 30


class Planner:
    """Plans one model on one profile, again and again with other words; what was traced once is kept."""

    def __init__(
        self, profile: Profile, values: dict[str, Any], words: Sequence[str], *, model: str = "--model"
    ) -> None:
        """``words`` are the user's Hydra overrides; ``model`` is where ``values`` are from."""
        self.profile, self.values, self.words, self.model = profile, values, tuple(words), model
        self.machine = machine(profile)
        self._role = cache(self._trace_role)
        self._rollout = cache(self._trace_rollout)

    def check(self) -> None:
        """Judge words and model before anything is traced, which takes minutes.

        Raises:
            OverrideError: with all mistakes in the model and in the words.
        """
        problems: list[Problem] = []
        for judge in (self._check_model, self._check_words):
            try:
                judge()
            except OverrideError as error:
                problems += error.problems
        if problems:
            raise OverrideError(*problems)

    def _check_model(self) -> None:
        models.check(self._config(), where=self.model)

    def _check_words(self) -> None:
        word_check.check(self._all(), self.words)

    def plan(self, more: Sequence[str] = ()) -> tuple[settings.Settings, list[Phase]]:
        """The phases with ``more`` words on top.

        Raises:
            OverrideError: a word that does not compose.
            MemoryPlanError: a setting whose bytes are not known.
        """
        chosen, traced = self.trace(more)
        return chosen, phases(chosen, traced, self.machine)

    def trace(self, more: Sequence[str] = ()) -> tuple[settings.Settings, Traced]:
        """The settings, and the bytes of each role."""
        chosen = settings.read(compose.compose_config(self._all(more)))
        shape = (chosen.prompt, chosen.response, chosen.world)
        return chosen, Traced(
            actor=self._role(chosen.actor, *shape),
            critic=self._role(chosen.critic, *shape) if chosen.critic else None,
            reference=self._role(chosen.reference, *shape) if chosen.reference else None,
            rollout=None if chosen.rollout.name == "vllm" else self._rollout(chosen.rollout, *shape[:2]),
            tied=bool(self._config().tie_word_embeddings),
        )

    def _all(self, more: Sequence[str] = ()) -> list[str]:
        return overrides.words(self.profile, _OWN, (*self.words, *more))

    def _config(self) -> Any:
        attention = self.profile.numerics.attention
        return models.configuration(self.values, attention=attention, where=self.model)

    def _trace_role(self, role: settings.RoleSettings, prompt: int, response: int, ranks: int) -> Any:
        from harness.ladder.memory import trace

        # Offloading moves bytes and makes none: the trace is the same.
        with self._computes():
            return trace.role(self._config(), role, prompt=prompt, response=response, ranks=ranks)

    def _trace_rollout(self, rollout: settings.RolloutSettings, prompt: int, response: int) -> Any:
        from harness.ladder.memory import trace

        with self._computes():
            return trace.rollout(self._config(), rollout, prompt=prompt, response=response)

    @contextmanager
    def _computes(self) -> Iterator[None]:
        """What torch refuses while it computes is a shape that contradicts itself: the user's to correct."""
        # torch logs the refused operation's traceback before it raises.
        log = logging.getLogger("torch._subclasses.fake_tensor")
        before, log.disabled = log.disabled, True
        try:
            yield
        except VerlockError:
            raise
        except Exception as error:
            raise OverrideError(
                "the model does not compute with this configuration",
                where=self.model,
                why=f"{type(error).__name__}: {models.line(error)}",
                todo="compare its numbers with the published config.json, or name a shipped shape",
            ) from error
        finally:
            log.disabled = before


def machine(profile: Profile) -> Machine:
    """The profile's memory."""
    device = profile.hardware.device_memory_gib
    return Machine(
        device=int(device * _GIB) if device else None, host=int(profile.hardware.memory_gib * _GIB)
    )


def run(profile_name: str, model: str, words: Sequence[str], output: Output) -> None:
    """Plan and report.

    Raises:
        MemoryPlanError: it does not fit, with the first key to change; or it cannot be planned.
        OverrideError: words that do not compose or leave no plan, all at once; a model that cannot be.
    """
    started = time.monotonic()
    profile = load(profile_name)
    values = models.values(model)
    # verl chooses its platform and its engines when it is imported; the trace is one on a CPU.
    os.environ |= PluginSettings(device="cpu", attention=profile.numerics.attention).environment()
    planner = Planner(profile, values, words, model=models.place(model))
    planner.check()
    with output.busy(f"tracing {model} under {profile.name}"):
        chosen, traced = planner.trace()
        found = phases(chosen, traced, planner.machine)
        verdict = fit.judge(found, planner.machine, ranks=chosen.ranks_per_node)
        seconds = time.monotonic() - started
        keys = () if verdict.fits else fit.advice(planner.plan, planner.machine, chosen, verdict)
    document = {
        "profile": profile.name,
        "model": model,
        "parameters": traced.actor.parameters,
        "ranks": chosen.world,
        "fits": verdict.fits,
        "assumed": list(chosen.assumed),
        "seconds": round(seconds, 2),
        "device_memory": planner.machine.device,
        "host_memory": planner.machine.host,
        "roles": {
            name: vars(one)
            for name in ("actor", "critic", "reference", "rollout")
            if (one := getattr(traced, name)) is not None
        },
        "phases": [phase.document() for phase in found],
        "offload": {
            "on" if on else "off": _by_role(
                phases(settings.offloaded(chosen, on=on), traced, planner.machine)
            )
            for on in (True, False)
        },
        "change": list(keys),
    }
    output.result(document, lambda: _print(document, output))
    if not verdict.fits:
        error = MemoryPlanError(*_problems(verdict, planner.machine, keys, model, profile))
        if output.as_json:
            raise SystemExit(error.exit_code)
        raise error


def _by_role(found: Sequence[Phase]) -> dict[str, dict[str, int]]:
    """The most that device and host hold while a role works."""
    working = [(phase.active[0], phase) for phase in found if phase.name != "start"]
    return {
        role: {
            "device": max(phase.device for name, phase in working if name == role),
            "host": max(phase.host for name, phase in working if name == role),
        }
        for role in dict.fromkeys(name for name, _ in working)
    }


def _print(document: dict[str, Any], output: Output) -> None:
    shared = document["device_memory"] is None
    output.line(
        f"{document['model']}: {document['parameters'] / 1e6:.1f} M parameters, {document['ranks']} "
        f"rank{'s' if document['ranks'] != 1 else ''}, {document['profile']}; in MiB of tensors"
    )
    first = "each rank" if shared else "each device"
    output.line(f"  {'phase':<28} {first:>12} {'host':>10}")
    for phase in document["phases"]:
        output.line(f"  {phase['name']:<28} {phase['device'] >> 20:>12} {phase['host'] >> 20:>10}")
    if not shared:
        output.line(f"  {'at most, by role at work':<28} {'offloaded':>12} {'not':>10}")
        on, off = document["offload"]["on"], document["offload"]["off"]
        for role in on:
            output.line(f"  {role:<28} {on[role]['device'] >> 20:>12} {off[role]['device'] >> 20:>10}")
    if document["assumed"]:
        output.line(f"  not set, taken as: {', '.join(document['assumed'])}")
    if document["fits"]:
        output.line(f"fits; planned in {document['seconds']:.0f} s", style="bold green")


def _problems(
    verdict: fit.Verdict, machine: Machine, keys: Sequence[str], model: str, profile: Profile
) -> list[Problem]:
    todo = (
        f"change first: {keys[0]}" + (f"; then also {', '.join(keys[1:])}" if len(keys) > 1 else "")
        if keys
        else "no key that was tried is enough, alone or together: use a smaller model or more GPUs"
    )
    found = []
    for over, phase, kind, have in (
        (verdict.device_over or 0, verdict.device, "device", machine.device),
        (verdict.host_over, verdict.host, "host", machine.host),
    ):
        if over > 0 and have is not None:
            found.append(
                Problem(
                    what=f"{model} is {over / _GIB:.2f} GiB over the {kind} memory of {profile.name}",
                    where=f"phase {phase.name}",
                    why=f"{have / _GIB:.1f} GiB, less {_reserve(kind) / _GIB:.0f} GiB that are no tensors",
                    todo=todo,
                )
            )
    return found


def _reserve(kind: str) -> int:
    return fit.DEVICE_RESERVE if kind == "device" else fit.HOST_RESERVE
