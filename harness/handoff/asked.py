"""The words of the command line, judged before gigabytes are read: all that is wrong with them, at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import JsonValue

from harness.adapt import verls
from harness.diagnose.diff import flat
from harness.errors import OverrideError, Problem
from harness.handoff.parameters import CLAIM, Asked
from harness.handoff.words import bare, read
from harness.profiles import Profile
from harness.profiles.explain import nearest

CONFIG = "config.yaml"
"""verl's whole configuration, as the highest trainer rung of a run resolved it."""
_TIME = re.compile(r"\d{1,3}:[0-5]\d:[0-5]\d")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_CLAIM_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w.@/-]*=.*", re.DOTALL)
_IN_IMAGE = "/opt/verlock"
# What the job's own options say: an override would contradict the rest of the file.
_OPTIONS = {
    "trainer.nnodes": "--nodes",
    "trainer.n_gpus_per_node": "--gpus-per-node",
    "trainer.default_local_dir": "--name, below whose folder in /runs a job finds its checkpoints again",
}


def judge(profile: Profile, asked: Asked, config: Mapping[str, Any] | None) -> None:
    """Refuse what is wrong.

    Args:
        profile: whose image is handed on.
        asked: the words.
        config: verl's configuration in the run that proves the image; None where there is no such run, and
            keys are then only compared with those that other releases have.

    Raises:
        OverrideError: with every wrong word.
    """
    problems = [*_volumes(profile, asked), *_sizes(asked)]
    for text in asked.overrides:
        problems += _override(profile, text, config)
    if config is None:
        problems += verls.misplaced(asked.overrides, profile.software.verl)
    if problems:
        raise OverrideError(*problems)


def config_of(run: Path) -> Mapping[str, Any] | None:
    """The configuration that a run kept; None if it kept none that can be read."""
    try:
        found = yaml.safe_load((run / CONFIG).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _volumes(profile: Profile, asked: Asked) -> Iterator[Problem]:
    known = ", ".join(profile.handoff.volumes)
    for text in asked.volumes:
        target, equals, source = text.partition("=")
        if target not in profile.handoff.volumes or not equals or not source:
            yield Problem(
                what=f"--volume {text} names no volume",
                why=f"the jobs have {known}",
                todo="write FOLDER=SOURCE",
            )
        elif source.startswith(CLAIM) and not _CLAIM_NAME.fullmatch(source.removeprefix(CLAIM)):
            yield Problem(
                what=f"--volume {text} names no claim",
                why="Kubernetes takes small letters, digits, - and .",
                todo=f"write {target}={CLAIM}NAME",
            )
        elif not source.startswith((CLAIM, "/", "./")):
            yield Problem(
                what=f"--volume {text} is no path",
                why="each node would look for it in another folder",
                todo="give an absolute path, or pvc:CLAIM",
            )


def _sizes(asked: Asked) -> Iterator[Problem]:
    limit = asked.time_limit
    if limit and not _TIME.fullmatch(limit):
        yield Problem(
            what=f"--time-limit {limit} is no time", why="Slurm's form is taken", todo="write HOURS:MM:SS"
        )
    elif limit and not limit.strip("0:"):
        yield Problem(
            what=f"--time-limit {limit} leaves no time",
            why="a job that may last no second is not started",
            todo="give more, or leave it out",
        )
    if asked.name and not _NAME.fullmatch(asked.name):
        yield Problem(
            what=f"--name {asked.name} is no name",
            why="Kubernetes takes small letters, digits and -, 40 at most",
            todo="give another one",
        )
    if asked.queue and not re.fullmatch(r"[A-Za-z0-9._,-]+", asked.queue):
        yield Problem(
            what=f"--queue {asked.queue} is no queue",
            why="it takes letters, digits and . _ , -",
            todo="give a partition's name",
        )


def _override(profile: Profile, text: str, config: Mapping[str, Any] | None) -> Iterator[Problem]:
    if not _OVERRIDE.fullmatch(text):
        yield Problem(
            what=f"--set {text} is no Hydra override", why="it has no key, or no =", todo="write key=value"
        )
        return
    ((key, value),) = read([text]).items()
    name = bare(key)
    if name in _OPTIONS:
        yield Problem(
            what=f"--set {text}: the job itself says {name}",
            where=name,
            why="the rest of the job would not fit",
            todo=f"give {_OPTIONS[name]}",
        )
    volumes = profile.handoff.volumes
    for path in value if isinstance(value, list) else [value]:
        inside = isinstance(path, str) and any(path == f or path.startswith(f"{f}/") for f in volumes)
        if isinstance(path, str) and path.startswith("/") and not inside and not path.startswith(_IN_IMAGE):
            yield Problem(
                what=f"--set {text}: no volume of the job holds {path}",
                where=name,
                why=f"the container sees {', '.join(volumes)}",
                todo="put it into one of them (--volume says where that is on the cluster)",
            )
    if config is not None:
        yield from _against(text, key, value, config, {bare(k) for k in profile.run.overrides if k[0] == "+"})


def _against(
    text: str, key: str, value: JsonValue, config: Mapping[str, Any], added: set[str]
) -> Iterator[Problem]:
    """``added`` are keys that the profile itself puts in, so that the configuration has them."""
    name, keys = bare(key), dict(flat(config))
    if any(one.startswith(f"{name}.") for one in keys):
        return  # a whole section
    if name not in keys and key == name:
        near = nearest(name, keys)
        yield Problem(
            what=f"--set {text}: verl has no key {name}",
            where=name,
            why="the configuration of the run that proves the image lacks it",
            todo=(f"did you mean {near}? " if near else "") + f"To add a key, write +{name}=...",
        )
    elif name in keys and key == f"+{name}" and name not in added:
        yield Problem(
            what=f"--set {text}: verl has this key already",
            where=name,
            why="Hydra refuses + for a key that is there",
            todo=f"write {name}=...",
        )
    elif name in keys and not _fits(value, keys[name]):
        yield Problem(
            what=f"--set {text}: it takes another type",
            where=name,
            why=f"it is {keys[name]!r} in the run that proves the image",
            todo=f"give a {type(keys[name]).__name__}",
        )


def _fits(value: JsonValue, known: Any) -> bool:
    """Whether a value may take the place of a known one; what the known one does not tell is let through."""
    if value is None or known is None or isinstance(known, str | Mapping):
        return True
    if isinstance(value, str) and value.startswith("${"):
        return True
    if isinstance(known, bool) or isinstance(value, bool):
        return isinstance(known, bool) and isinstance(value, bool)
    if isinstance(known, int | float):
        return isinstance(value, int | float)
    return isinstance(value, list) == isinstance(known, list)
