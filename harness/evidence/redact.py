"""What must not leave a machine in a bug report, found in text and replaced by the name of its kind.

Two sources: what this machine knows to be its own (variables that hold secrets, names, home, addresses), and
the forms that secrets have wherever they come from. Replacing is idempotent: what is replaced holds none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from harness.evidence import addresses

Kind = Literal["secret", "home", "user", "host", "address", "mail", "folder"]
STAND_IN = "<removed:secret>"
# Shorter ones are words that stand everywhere: PASSWORD=yes.
_SHORTEST = 6
_SECRET_NAME = re.compile(
    r"(?i)(?:^|_)(?:token|secret|passw(?:or)?d|credential|apikey|(?:api|access|private)_key|auth)s?(?:$|_)"
)
_PATHLIKE = re.compile(r"^[/~.]|^(?:\d+|true|false|yes|no|none)$", re.IGNORECASE)
# Words of one key, so that max_token_len, pad_token_id and chi2_token stay what they are. The name of a
# variable, in capitals, may end in them.
_KEY = (
    r"(?:[\w.-]*(?:passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
    r"|(?:auth|access|refresh|bearer|hf|hub|github|gh|gitlab|wandb|session|api)[_-]?token)"
    r"|(?-i:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:TOKEN|KEY|AUTH|PWD))|token|authorization|pwd)"
)
_FORMS: tuple[re.Pattern[str], ...] = (
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<secret>.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    # Tokens by their makers' own prefixes.
    re.compile(r"\b(?P<secret>hf_[A-Za-z0-9]{16,})"),
    re.compile(r"\b(?P<secret>(?:gh[pousr]|github_pat|glpat|xox[abprs]|sk|pypi|npm|dop_v1)[-_][\w-]{16,})"),
    re.compile(r"\b(?P<secret>(?:AKIA|ASIA)[A-Z0-9]{16})\b"),
    re.compile(r"\b(?P<secret>AIza[\w-]{30,})"),
    re.compile(r"\b(?P<secret>eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"),
    # user:password@ in an address, or a token alone.
    re.compile(r"(?<=://)(?P<secret>[^\s/@'\"<>]+)(?=@)"),
    re.compile(
        r"(?i)[?&;](?:[\w-]*(?:token|key|secret|signature|credential|password)|sig)=(?P<secret>[^\s&;'\"<>]+)"
    ),
    re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<secret>[\w.~+/=-]{8,})"),
    # key=value, "key": "value", key: value, --key value
    re.compile(
        rf"(?i)(?<![\w.-]){_KEY}[\"']?\s*(?:[=:]\s*|(?<=[\w])\s+(?=\S{{16,}}))[\"']?(?P<secret>[^\s\"',;}}\])&]{{6,}})"
    ),
)
_HOMES = re.compile(r"(?P<home>/(?:home|Users)/(?P<user>[^/\s:'\"]+))")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")
# Any other name that ends in such a word, before a value that nobody writes by hand.
_LONG_VALUE = re.compile(
    r"(?i)(?<![A-Za-z0-9])(?:key|token|secret|passw(?:or)?d|credential)s?[\"']?(?:\s*[=:]\s*|\s+)[\"']?"
    r"(?P<secret>(?=[\w+/.~-]*\d)(?=[\w+/.~-]*[A-Za-z])[\w+/.~=-]{16,})"
)
_RANDOM = re.compile(r"[A-Za-z0-9]{16,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WANDB = re.compile(r"(?i)wandb[^\n]{0,120}?\b(?P<secret>[0-9a-f]{40})\b")
# What stands after such a key and is none: a word, a special token of a model, a measured number.
_HARMLESS = re.compile(
    r"(?i)(?:null|none|true|false|required|optional|default|removed)\b|<|\$|-?\d+\.\d*(?:e-?\d+)?$|-?\d+e-?\d+$"
)


@dataclass(frozen=True, kw_only=True)
class Own:
    """What this machine, or the record, says of itself. ``folders``: a path and what stands for it."""

    secrets: frozenset[str] = frozenset()
    homes: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    folders: Mapping[str, str] = field(default_factory=dict)
    packages: frozenset[str] = frozenset()
    """Distributions, in lower case with dashes: four numbers behind such a name are a version."""

    @cached_property
    def table(self) -> list[tuple[re.Pattern[str], Kind, str]]:
        """Patterns, the longest first within each kind: a folder inside another goes before it."""
        found: list[tuple[re.Pattern[str], Kind, str]] = []
        found += [(_plain(s), "secret", STAND_IN) for s in _longest(self.secrets)]
        found += [(_path(f), "folder", self.folders[f]) for f in _longest(self.folders)]
        found += [(_path(h), "home", "~") for h in _longest(self.homes)]
        found += [(_word(a), "address", "<address>") for a in _longest(self.addresses)]
        found += [(_word(h), "host", "<host>") for h in _longest(self.hosts)]
        return found + [(_word(u), "user", "<user>") for u in _longest(self.users)]


def secrets_in(environ: Mapping[str, str]) -> frozenset[str]:
    """The values of variables whose name says that they are secret."""
    return frozenset(
        value for name, value in environ.items() if _SECRET_NAME.search(name) and worth_hiding(value)
    )


def secret_name(key: str) -> bool:
    """Whether a key of the configuration, or a variable, says of itself that its value is secret."""
    return _SECRET_NAME.search(key.rpartition(".")[2]) is not None


def worth_hiding(value: str) -> bool:
    """Whether what stands under such a name can be a secret: not null, a number, or a word like "yes"."""
    return len(value) >= _SHORTEST and not _PATHLIKE.match(value) and not _HARMLESS.match(value)


def _looks_random(value: str) -> bool:
    """Letters and digits without a word's limits: names of columns and metrics have such."""
    return any(re.search(r"\d", found) and re.search(r"[A-Za-z]", found) for found in _RANDOM.findall(value))


def users_in(text: str) -> frozenset[str]:
    """User names that home folders in the text betray: a record may come from another machine."""
    return frozenset(m["user"] for m in _HOMES.finditer(text) if len(m["user"]) >= 3)


def without_secrets(text: str, stand_in: str = STAND_IN) -> tuple[str, Counter[Kind]]:
    """The text without what has the form of a secret, and how many those were."""
    taken: Counter[Kind] = Counter()

    def form(match: re.Match[str]) -> str:
        if _HARMLESS.match(match["secret"]):
            return match[0]
        taken["secret"] += 1
        begin, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        return f"{match[0][:begin]}{stand_in}{match[0][end:]}"

    def long(match: re.Match[str]) -> str:
        return form(match) if _looks_random(match["secret"]) else match[0]

    for pattern in _FORMS:
        text = pattern.sub(form, text)
    text = _WANDB.sub(form, _LONG_VALUE.sub(long, text))
    return text, taken


def clean(text: str, own: Own) -> tuple[str, Counter[Kind]]:
    """The text without them, and how many of each kind were taken out."""
    text, taken = without_secrets(text)
    for pattern, kind, stand_in in own.table:
        text, count = pattern.subn(stand_in, text)
        taken[kind] += count
    text, count = _HOMES.subn("~", text)
    taken["home"] += count
    text, count = _MAIL.subn("<mail>", text)
    taken["mail"] += count
    text, count = addresses.clean(text, own.packages)
    taken["address"] += count
    return text, +taken


def _longest(words: Iterable[str]) -> list[str]:
    return sorted((word for word in words if word), key=lambda word: (-len(word), word))


def _plain(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))


def _path(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(text)}(?![\w.-])")


def _word(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])")
