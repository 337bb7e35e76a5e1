"""Which rungs the next climb of a watch has: all at first, then the one that failed, then on upwards."""

from __future__ import annotations

from harness.ladder.options import ORDER, RungName

# Those whose trainer can take over a Ray that is up: the others start several, or of another size.
_TRAINS = frozenset({"ppo-mock", "ppo"})


class Plan:
    """``only``: one rung, whatever comes of it; else all up to ``last``, and from a failure on."""

    def __init__(self, *, only: RungName | None, last: RungName) -> None:
        """Nothing is climbed yet."""
        self._only = only
        self._top = ORDER.index(only or last)
        self._first = ORDER.index(only) if only else 0
        self._last = self._top
        self.goes_on = False
        """Whether the next climb begins at once: what had failed has passed, and there are more above."""

    @property
    def trains(self) -> bool:
        """Whether the next climb runs a trainer that can take over a Ray."""
        return bool(_TRAINS & set(ORDER[self._first : self._last + 1]))

    def words(self) -> list[str]:
        """The climb's options."""
        return ["--from", ORDER[self._first], "--to", ORDER[self._last]]

    def told(self) -> str:
        """For people."""
        first, last = ORDER[self._first], ORDER[self._last]
        return first if first == last else f"{first} to {last}"

    def broken(self) -> None:
        """The code could not be imported: the same rungs again."""
        self.goes_on = False

    def ended(self, rung: str | None, *, passed: bool) -> None:
        """A climb ended at ``rung`` (none: before any)."""
        self.goes_on = False
        if self._only or rung is None:
            return
        place = ORDER.index(rung)
        if not passed:
            self._first = self._last = place
        elif place < self._top:
            self._first, self._last, self.goes_on = place + 1, self._top, True
        else:
            self._first = self._last = self._top
