"""Bars as SVG: groups of a side each, on a linear scale, or on a logarithmic one when they lie powers of ten apart."""

import math
from xml.sax.saxutils import escape

ROW, GAP, LEFT, WIDTH, RIGHT, TOP = 22, 10, 150, 460, 150, 66
FONT = 'font-family="sans-serif" font-size="12"'
COLOURS = {"ring": "#8c8c8c", "tcp": "#c44e52", "unix": "#dd8452", "direct": "#4c72b0", "proxy": "#55a868"}
# Beyond this a linear scale hides the smallest.
LINEAR_MAX = 15


class Scale:
    """From values to places on the horizontal axis."""

    def __init__(self, values):
        low, high = min(values), max(values)
        self.is_linear = high / low <= LINEAR_MAX
        if self.is_linear:
            step = 10 ** math.floor(math.log10(high))
            step = next(part for part in (step / 5, step / 2, step, step * 2) if high / part <= 6)
            self.first, self.last = 0, high * 1.02
            self.ticks = [index * step for index in range(math.floor(self.last / step) + 1)]
        else:
            self.first, self.last = math.floor(math.log10(low) * 2) / 2 - 0.25, math.log10(high) + 0.05
            self.ticks = [10**power for power in range(math.ceil(self.first), math.floor(self.last) + 1)]

    def place(self, value):
        """Where a value lies."""
        at = value if self.is_linear else math.log10(value)
        return LEFT + WIDTH * (at - self.first) / (self.last - self.first)


def group(name):
    """What rows that stand together have in common: all behind the side."""
    return name.partition(" ")[2]


def places(rows):
    """The vertical place of each row; groups of one size stand apart when there are several rows in each."""
    groups = [group(name) for name, *_ in rows]
    changes = [index for index in range(1, len(groups)) if groups[index] != groups[index - 1]]
    apart = len(changes) < len(groups) / 1.5
    place = TOP
    for index in range(len(rows)):
        if apart and index in changes:
            place += GAP
        yield place
        place += ROW


def figure(value):
    """A value with three digits or all before the point."""
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def bars(title, unit, mark_title, rows):
    """An SVG of (name, value, mark) rows; the mark, if any, is a line at a second value, as of a percentile.

    A row without a value is left out.
    """
    rows = [row for row in rows if row[1]]
    if not rows:
        return None
    scale = Scale([value for _, *pair in rows for value in pair if value])
    tops = list(places(rows))
    bottom = tops[-1] + ROW
    width, height = LEFT + WIDTH + RIGHT, bottom + 42
    legend = "bars: medians"
    if mark_title:
        legend = f"bars, first figure: medians; black lines, second figure: {mark_title}"
    legend += "" if scale.is_linear else "; logarithmic scale"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
        f'<text x="10" y="38" fill="#555555">{escape(legend)}</text>',
    ]
    for tick in scale.ticks:
        x = scale.place(tick)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="#dddddd"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555555">{tick:,.10g}</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 34}" text-anchor="middle">{escape(unit)}</text>')
    for (name, value, mark), top in zip(rows, tops):
        end = scale.place(value)
        fill = COLOURS.get(name.split()[0], "#8172b3")
        out.append(f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect x="{LEFT}" y="{top}" width="{end - LEFT:.1f}" height="{ROW - 6}" fill="{fill}"/>')
        label = figure(value)
        if mark:
            label += f"; {figure(mark)}"
            x = scale.place(mark)
            end = max(end, x)
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + ROW - 6}" stroke="black" stroke-width="2"/>')
        out.append(f'<text x="{end + 6:.1f}" y="{top + 12}" fill="#333333">{label}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
