"""Bars on a logarithmic scale, as SVG: for tables whose rows lie powers of ten apart."""

import math
from xml.sax.saxutils import escape

ROW, LEFT, WIDTH, TOP = 22, 150, 460, 46
COLOURS = {"ring": "#999999", "tcp": "#c44e52", "unix": "#dd8452", "direct": "#4c72b0", "proxy": "#55a868"}


def colour(name):
    return COLOURS.get(name.split()[0], "#8172b3")


def bars(title, unit, rows):
    """An SVG of (name, value, mark) rows; the mark, if any, is a thin line at a second value, as of a percentile."""
    values = [value for _, *pair in rows for value in pair if value]
    low = math.floor(math.log10(min(values)) * 2) / 2 - 0.25
    high = math.log10(max(values)) + 0.1

    def place(value):
        return LEFT + WIDTH * (math.log10(value) - low) / (high - low)

    height = TOP + ROW * len(rows) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = place(10**power)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 26}" stroke="#dddddd"/>')
        out.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle" fill="#555555">{10**power:g} {unit}</text>')
    for index, (name, value, mark) in enumerate(rows):
        y = TOP + ROW * index
        out.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{place(value) - LEFT:.1f}" height="{ROW - 6}" fill="{colour(name)}"/>')
        end = place(value)
        if mark:
            end = max(end, place(mark))
            x = place(mark)
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + ROW - 6}" stroke="black" stroke-width="2"/>')
        out.append(f'<text x="{end + 6:.1f}" y="{y + 12}" fill="#333333">{value:.3g}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
