"""The words of a training command: what Hydra gets, and what the command says beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from harness.errors import OverrideError

TRAINER = "verl.trainer.main_ppo"
_VALUES = {
    "--config-path": "config_path",
    "-cp": "config_path",
    "--config-name": "config_name",
    "-cn": "config_name",
    "--config-dir": "config_dir",
    "-cd": "config_dir",
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One training command. ``module`` is what Python runs; ``words`` are Hydra's overrides, in order."""

    module: str
    words: tuple[str, ...] = ()
    config_path: str | None = None
    config_name: str | None = None
    config_dir: str | None = None
    unknown: tuple[str, ...] = ()
    """Options that are none of Hydra's."""
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path()
    """Where the command runs: relative paths start here."""

    @property
    def trains(self) -> bool:
        """Whether it is verl's PPO trainer."""
        return self.module == TRAINER

    def path(self, given: str) -> Path:
        """What a path in its words means."""
        return self.folder / Path(given).expanduser()


def parse(argv: Sequence[str], *, environ: Mapping[str, str], folder: Path) -> Asked:
    """The command ``argv``: ``python -m MODULE ...``, ``python .../main_ppo.py ...``, or behind a launcher.

    Raises :class:`OverrideError` where no Python program is started in it.
    """
    found = _module(argv)
    if found is None:
        raise OverrideError(
            "this is no training command",
            where=" ".join(argv[:4]),
            todo=f"give: python -m {TRAINER} KEY=VALUE..., or a shell script that ends in one",
        )
    module, rest = found
    options: dict[str, str] = {}
    words, unknown = [], []
    for name, value in _split(rest):
        if name in _VALUES:
            options[_VALUES[name]] = value
        elif name:
            unknown.append(name)
        else:
            words.append(value)
    return Asked(
        module=module, words=tuple(words), unknown=tuple(unknown), environ=environ, folder=folder, **options
    )


def _module(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """The module that Python runs and what follows it; launchers (uv run, torchrun, env) come before."""
    for place, word in enumerate(argv):
        if word == "-m" and place + 1 < len(argv):
            return argv[place + 1], list(argv[place + 2 :])
        if word.endswith(".py") and "=" not in word and not word.startswith("-"):
            return _of_file(word), list(argv[place + 1 :])
    return None


def _of_file(path: str) -> str:
    """``.../verl/trainer/main_ppo.py`` as a module; another file keeps its name."""
    parts = PurePath(path).with_suffix("").parts
    if "verl" in parts:
        start = len(parts) - 1 - parts[::-1].index("verl")
        return ".".join(parts[start:])
    return path


def _split(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs: an option and its value, or nothing and a word."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            yield "", word
            continue
        name, sign, value = word.partition("=")
        if name in _VALUES:
            yield name, value if sign else next(rest, "")
        else:
            yield word, ""
