"""A small line plot as SVG: pure text in, text out, no script and no style from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 300, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 22


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """A linear map from values to pixels. All values equal: they lie in the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return round(self.start + share * (self.end - self.start), 1)


def line_plot(
    points: Sequence[tuple[int, float]], *, name: str, band: Sequence[tuple[int, float, float]] = ()
) -> str:
    """Draw ``(step, value)`` points; those that are not finite are left out. Needs at least one.

    ``band`` is drawn behind them: at each step from a low value to a high one.
    """
    drawn = [(step, value) for step, value in points if math.isfinite(value)]
    if not drawn:
        return ""
    values, steps = [value for _, value in drawn], [step for step, _ in drawn]
    spread = [(step, a, b) for step, a, b in band if math.isfinite(a) and math.isfinite(b)]
    low, high = min([*values, *(a for _, a, _ in spread)]), max([*values, *(b for _, _, b in spread)])
    x = _Scale(low=min(steps), high=max(steps), start=_LEFT, end=WIDTH - _RIGHT)
    y = _Scale(low=low, high=high, start=HEIGHT - _BOTTOM, end=_TOP)
    around = [(step, b) for step, _, b in spread] + [(step, a) for step, a, _ in reversed(spread)]
    shade = " ".join(f"{x(step)},{y(value)}" for step, value in around)
    path = " ".join(f"{x(step)},{y(value)}" for step, value in drawn)
    label = f"{name}: {number(values[0])} at step {steps[0]}, {number(values[-1])} at step {steps[-1]}"
    return "".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
            *_axis({low: y(low), high: y(high)}, {steps[0]: x(steps[0]), steps[-1]: x(steps[-1])}),
            *([f'<polygon class="band" points="{shade}"/>'] if shade else []),
            f'<polyline class="line" points="{path}"/>',
            *(_dot(x(step), y(value), f"step {step}: {value!r}") for step, value in drawn),
            "</svg>",
        ]
    )


def _axis(values: dict[float, float], steps: dict[int, float]) -> list[str]:
    base = HEIGHT - _BOTTOM
    lines = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        for y in {*values.values(), float(base)}
    ]
    labels = apart(list(values))
    left = [
        f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end"{_smaller(label)}>{label}</text>'
        for label, y in zip(labels, values.values(), strict=True)
    ]
    # Anchored inwards, so that neither the first nor the last label is cut or overlaps a value.
    anchors = ["middle"] if len(steps) == 1 else ["start", "end"]
    below = [
        f'<text x="{x}" y="{HEIGHT - 6}" text-anchor="{anchor}">step {step}</text>'
        for (step, x), anchor in zip(steps.items(), anchors, strict=True)
    ]
    return [*lines, *left, *below]


def _dot(x: float, y: float, text: str) -> str:
    at = f'cx="{x}" cy="{y}"'
    hit = f'<circle class="hit" r="9" {at}><title>{escape(text)}</title></circle>'
    return f'<g class="dot"><circle r="2.5" {at}/>{hit}</g>'


def _smaller(label: str) -> str:
    """Eight characters have room beside the axis."""
    return f' font-size="{80 / len(label):.1f}"' if len(label) > len("-1.2e-05") else ""


def apart(values: Sequence[float]) -> list[str]:
    """Labels with three digits, or as many more as tell different values apart."""
    different = len(set(values))
    for digits in range(3, 18):
        labels = [f"{value:.{digits}g}" for value in values]
        if len(set(labels)) == different:
            break
    return labels


def number(value: float) -> str:
    """Shorten a number to three significant digits, for an axis."""
    return f"{value:.3g}"
