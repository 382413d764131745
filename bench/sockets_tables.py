"""What was measured, as tables in Markdown, as pictures, and as targets that are reached or missed."""

import statistics

from bars import bars


class Ratio:
    """A ratio of a row to another one: its title, and which row is the base of a row."""

    def __init__(self, title, base):
        self.title = title
        self.base = base

    @classmethod
    def to(cls, base):
        """The ratio to one row."""
        return cls(f"/ {base}", lambda _: base)

    @classmethod
    def to_side(cls, side):
        """The ratio to the row that differs in its side alone: "tcp 16" for "direct 16"."""
        return cls(f"/ {side}", lambda row: " ".join([side, *row.split()[1:]]))


class Column:
    """A column of a table: a field in a unit, and the ratios of it that stand beside."""

    def __init__(self, title, field, scale=1.0, digits=2, ratios=()):
        self.title = title
        self.field = field
        self.scale = scale
        self.digits = digits
        self.ratios = ratios


class Table:
    """The figures of one part: row -> field -> a value a round."""

    def __init__(self, title, columns, plot=None):
        self.title = title
        self.columns = columns
        self.plot = plot
        self.rows = {}

    def add(self, row, values):
        """Adds a round's values."""
        fields = self.rows.setdefault(row, {})
        for field, value in values.items():
            fields.setdefault(field, []).append(value)

    def median(self, row, field):
        """The median of the rounds; None if it was not measured."""
        values = self.rows.get(row, {}).get(field)
        return statistics.median(values) if values else None

    def ratios(self, row, base, field):
        """A ratio a round; none if one of the two was not measured."""
        ours, theirs = (self.rows.get(name, {}).get(field, []) for name in (row, base))
        return [a / b for a, b in zip(ours, theirs) if b]

    def lines(self):
        """The table in Markdown."""
        head = [self.title]
        for column in self.columns:
            head.append(column.title)
            head += [ratio.title for ratio in column.ratios]
        yield f"| {' | '.join(head)} |"
        yield "|---" * len(head) + "|"
        for row in self.rows:
            cells = [row]
            for column in self.columns:
                median = self.median(row, column.field)
                cells.append("" if median is None else f"{median / column.scale:,.{column.digits}f}")
                for base in (ratio.base(row) for ratio in column.ratios):
                    cells.append("" if base == row else told(self.ratios(row, base, column.field)))
            yield f"| {' | '.join(cells)} |"

    def picture(self):
        """The plot as SVG; None if there is none."""
        if not self.plot or not self.rows:
            return None
        title, unit, value, mark = self.plot

        def of(row, column):
            median = self.median(row, column.field) if column else None
            return median / column.scale if median else None

        return bars(title, unit, mark and mark.title.split()[0], [(row, of(row, value), of(row, mark)) for row in self.rows])


def told(ratios):
    """The median of some ratios, the lowest and the highest."""
    if not ratios:
        return ""
    median = statistics.median(ratios)
    digits = 3 if median < 0.1 else 2 if median < 10 else 1
    return f"{median:.{digits}f} ({min(ratios):.{digits}f}-{max(ratios):.{digits}f})"


class Target:
    """Something that was aimed at: values of which the median must be at most, or at least, a bound."""

    def __init__(self, what, values, *, at_most=None, at_least=None):
        self.what = what
        self.values = values
        self.at_most = at_most
        self.at_least = at_least

    def is_missed(self):
        """Whether it was measured and is not reached."""
        if not self.values:
            return False
        median = statistics.median(self.values)
        return median > self.at_most if self.at_most is not None else median < self.at_least

    def line(self):
        """The target's row in Markdown."""
        aim = f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"
        verdict = "**missed**" if self.is_missed() else "reached"
        return f"| {self.what} | {aim} | {told(self.values)} | {verdict} |"


def target_lines(targets):
    """The targets in Markdown."""
    yield "| target | aim | measured | |"
    yield "|---|---|---|---|"
    for target in targets:
        yield target.line()
