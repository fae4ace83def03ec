"""A month of 100 users and 64 GPUs on a fake clock: our order beside the rules of others.

`python -m bench.queue_month` takes some minutes of one processor; it writes the table of
docs/queue-order.md and its picture. Nothing is measured on this machine: the same seed gives the
same figures everywhere. Rules of others are a few lines each, from what they publish.
"""

import heapq
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from bench.measure import ROOT
from scripts.marked_text import replace_between
from trainyard.queue import order
from trainyard.queue.order import Entry, Rules

PAGE = ROOT / "docs" / "queue-order.md"
PICTURE = "queue-order.svg"  # next to the page
BEGIN, END = "<!-- month: python -m bench.queue_month -->\n", "<!-- end of the month -->"
HOUR, DAY = 3600.0, 86400.0
NODES, GPUS = 8, 8  # nodes, and GPUs of each
USERS = 100
LOAD = 0.88  # of all GPU-hours of the month are asked for
SIZES = {1: 0.45, 2: 0.2, 4: 0.15, 8: 0.14, 16: 0.06}  # GPUs of a job: share of the jobs
LENGTH_S, SPREAD, LONGEST_S = 40 * 60.0, 1.4, 3 * DAY  # median and sigma of a log-normal length
JOBS_A_DAY = 215
NIGHT = 0.8  # by so much fewer jobs than on average come at the quietest hour
SAID = (1.0, 3.0)  # a job says that it takes between so many times its real length
HALF_LIFE_S = 7 * DAY  # Slurm's default, for ours too
FEW = 10  # jobs; the worst user is one of those who had as many

Free = list[int]
"""Free GPUs of each node."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of the month: GPUs, and seconds since its beginning."""

    name: str
    user: str
    gpus: int
    came: float
    length: float
    said: float


@dataclass(frozen=True, kw_only=True)
class Now:
    """What a rule knows: who waits (first come first), who runs and until when they said."""

    time: float
    waiting: Sequence[Job]
    running: dict[str, tuple[Job, float, list[tuple[int, int]]]]  # job, start, GPUs by node
    free: Free
    use: dict[str, float]  # decayed GPU-seconds by user


Rule = Callable[[Now], Iterable[tuple[Job, list[tuple[int, int]]]]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a month.

    Attributes:
        waits: seconds of each job, by its name.
        started: jobs within the month.
        busy: share of the GPUs on each day.
    """

    waits: dict[str, float]
    started: int
    busy: list[float]


def month(seed: int = 43, days: int = 30) -> list[Job]:
    """Draw the jobs: users differ in how much they submit, and nights are quiet."""
    rng = random.Random(seed)  # noqa: S311 (no secret)
    weights = [rng.lognormvariate(0, 1) for _ in range(USERS)]
    drawn = []
    time = 0.0
    while (time := time + rng.expovariate(JOBS_A_DAY * (1 + NIGHT) / DAY)) < days * DAY:
        hour = math.sin(2 * math.pi * (time / DAY - 0.375))  # busiest at 15:00
        if rng.random() * (1 + NIGHT) > 1 + NIGHT * hour:
            continue
        (user,) = rng.choices(range(USERS), weights)
        (gpus,) = rng.choices([*SIZES], [*SIZES.values()])
        length = min(rng.lognormvariate(math.log(LENGTH_S), SPREAD), LONGEST_S)
        drawn.append((time, f"u{user:02}", gpus, length, rng.uniform(*SAID)))
    asked = sum(gpus * length for _, _, gpus, length, _ in drawn)
    scale = LOAD * NODES * GPUS * days * DAY / asked  # long jobs are few: the sum would vary
    return [
        Job(
            name=f"j{number:05}",
            user=user,
            gpus=gpus,
            came=came,
            length=length * scale,
            said=length * scale * times,
        )
        for number, (came, user, gpus, length, times) in enumerate(drawn)
    ]


def run(jobs: Sequence[Job], rule: Rule, days: int = 30) -> Outcome:
    """Let a rule decide at each arrival and end; the jobs of the month all end after it."""
    arrivals, ends = list(reversed(jobs)), list[tuple[float, str]]()
    now = Now(time=0.0, waiting=[], running={}, free=[GPUS] * NODES, use=defaultdict(float))
    waits: dict[str, float] = {}
    busy = [0.0] * days
    while arrivals or ends:
        time = min(arrivals[-1].came if arrivals else math.inf, ends[0][0] if ends else math.inf)
        _add_use(now, time, busy)
        waiting = list(now.waiting)
        while arrivals and arrivals[-1].came <= time:
            waiting.append(arrivals.pop())
        while ends and ends[0][0] <= time:
            _, _, on = now.running.pop(heapq.heappop(ends)[1])
            for node, count in on:
                now.free[node] += count
        now = Now(time=time, waiting=waiting, running=now.running, free=now.free, use=now.use)
        gone = set()
        for job, on in rule(now):
            for node, count in on:
                now.free[node] -= count
            if min(now.free) < 0:
                raise AssertionError(f"{job.name} was put where no GPU was free")
            now.running[job.name] = (job, time, on)
            heapq.heappush(ends, (time + job.length, job.name))
            waits[job.name] = time - job.came
            gone.add(job.name)
        waiting[:] = [job for job in waiting if job.name not in gone]
    started = sum(job.came + waits[job.name] < days * DAY for job in jobs)
    return Outcome(
        waits=waits, started=started, busy=[each / (NODES * GPUS * DAY) for each in busy]
    )


def _add_use(now: Now, until: float, busy: list[float]) -> None:
    """Add what runs to its users' decayed use and to the days."""
    decay = math.log(2) / HALF_LIFE_S
    kept = math.exp(-decay * (until - now.time))
    for user in now.use:
        now.use[user] *= kept
    total = 0
    for job, _, _ in now.running.values():
        now.use[job.user] += job.gpus * (1 - kept) / decay
        total += job.gpus
    for day in range(int(now.time // DAY), min(int(until // DAY) + 1, len(busy))):
        busy[day] += total * (min(until, (day + 1) * DAY) - max(now.time, day * DAY))


def seat(gpus: int, free: Free) -> list[tuple[int, int]] | None:
    """Find a place: on the fullest node that has room, or on two whole nodes."""
    each, count = min(gpus, GPUS), max(1, gpus // GPUS)
    nodes = sorted((has, node) for node, has in enumerate(free) if has >= each)[:count]
    return [(node, each) for _, node in nodes] if len(nodes) == count else None


def fifo(now: Now) -> Iterable[tuple[Job, list[tuple[int, int]]]]:
    """Strict: who came first starts first, and holds back all others."""
    for job in now.waiting:
        on = seat(job.gpus, now.free)
        if on is None:
            return
        yield job, on


def kueue(now: Now) -> Iterable[tuple[Job, list[tuple[int, int]]]]:
    """BestEffortFIFO in one ClusterQueue: by time, and one that does not fit lets others pass."""
    for job in now.waiting:
        on = seat(job.gpus, now.free)
        if on is not None:
            yield job, on


def slurm(now: Now) -> Iterable[tuple[Job, list[tuple[int, int]]]]:
    """Multifactor: classic fair share weighs ten times a week's age (sites choose that); EASY."""
    total = sum(now.use.values()) or 1.0

    def priority(job: Job) -> float:
        age = min(1.0, (now.time - job.came) / (7 * DAY))
        fair = 2 ** -(now.use.get(job.user, 0.0) / total * USERS)
        return 1000 * age + 10000 * fair

    yield from _easy(sorted(now.waiting, key=lambda job: (-priority(job), job.came)), now)


def _easy(jobs: Sequence[Job], now: Now) -> Iterable[tuple[Job, list[tuple[int, int]]]]:
    """Start in order; the first that has no room gets a reservation that no later one delays."""
    at, left = math.inf, list[int]()
    for job in jobs:
        if not left:
            on = seat(job.gpus, now.free)
            if on is None:
                at, left = _reserve(job, now)
        elif now.time + job.said <= at:
            on = seat(job.gpus, now.free)
        else:
            on = seat(job.gpus, [min(pair) for pair in zip(now.free, left, strict=True)])
            for node, count in on or ():
                left[node] -= count
        if on is not None:
            yield job, on


def _reserve(first: Job, now: Now) -> tuple[float, Free]:
    """When a job can start by what the others said, and what it then leaves."""
    left = list(now.free)
    for end, name in sorted((at + job.said, name) for name, (job, at, _) in now.running.items()):
        for node, count in now.running[name][2]:
            left[node] += count
        if (on := seat(first.gpus, left)) is not None:
            for node, count in on:
                left[node] -= count
            return end, left
    raise AssertionError(f"{first.name} does not fit the empty nodes")


def ours(*, backfill: bool, said: bool = True) -> Rule:
    """Our order; `said` whether jobs say how long they run."""
    rules = Rules(half_life_s=HALF_LIFE_S, backfill=backfill, preempt=False, quotas={})
    nodes = [{"GPU": float(GPUS)}] * NODES

    def entry(job: Job, at: float | None = None, on: Sequence[tuple[int, int]] = ()) -> Entry:
        return Entry(
            name=job.name,
            user=job.user,
            priority=0,
            queued=job.came,
            bundles=({"GPU": float(min(job.gpus, GPUS))},) * max(1, job.gpus // GPUS),
            seconds=job.said if said else None,
            started=at,
            on=tuple(node for node, _ in on),
        )

    def rule(now: Now) -> Iterable[tuple[Job, list[tuple[int, int]]]]:
        jobs = {job.name: job for job in now.waiting}
        plan = order.plan(
            [entry(job) for job in now.waiting],
            [entry(*each) for each in now.running.values()],
            nodes,
            now.use,
            rules,
            now.time,
        )
        for name in plan.start:
            yield jobs[name], [(node, min(jobs[name].gpus, GPUS)) for node in plan.on[name]]

    return rule


RULES: dict[str, Rule] = {
    "FIFO, strict": fifo,
    "Kueue, BestEffortFIFO": kueue,
    "Slurm, multifactor and EASY": slurm,
    "ours without backfill": ours(backfill=False),
    "ours with backfill": ours(backfill=True),
    "ours, no job says how long": ours(backfill=True, said=False),
}


def quantile(waits: Iterable[float], part: float) -> float:
    """The smallest value that this part of all does not exceed."""
    ordered = sorted(waits)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def worst(jobs: Sequence[Job], found: Outcome) -> float:
    """The longest mean wait of a user."""
    by_user = defaultdict(list)
    for job in jobs:
        by_user[job.user].append(found.waits[job.name])
    return max(statistics.fmean(each) for each in by_user.values() if len(each) >= FEW)


def table(jobs: Sequence[Job], outcomes: dict[str, Outcome]) -> str:
    """The table of the page: waits in hours."""
    large = [job.name for job in jobs if job.gpus > GPUS]
    heads = ["Rule", "GPUs busy", "Wait: half", "90 %", "99 %", "Longest", "Of 16 GPUs: 90 %"]
    heads += ["Worst user's mean", "Started"]
    rows = [f"| {' | '.join(heads)} |", f"| --- {'| ---: ' * (len(heads) - 1)}|"]
    for name, found in outcomes.items():
        waits = found.waits.values()
        hours = [
            *(quantile(waits, part) for part in (0.5, 0.9, 0.99, 1)),
            quantile((found.waits[each] for each in large), 0.9),
            worst(jobs, found),
        ]
        cells = [f"{100 * statistics.fmean(found.busy):.1f} %"]
        cells += [f"{each / HOUR:.2f} h" for each in hours]
        rows.append(f"| {name} | {' | '.join(cells)} | {found.started:,} |")
    return "\n".join(rows) + "\n"


WIDTH, LEFT, RIGHT = 380, 12, 368  # of a telephone: text is readable there
FIRST_S, LAST_S = 60.0, 1000 * HOUR  # of the axis of waits, which is logarithmic
TICKS = {60.0: "≤ 1 min", 600.0: "10 min", HOUR: "1 h", 10 * HOUR: "10 h", 100 * HOUR: "100 h"}
STYLE = """
    .page { fill: #ffffff } text { fill: #1a2233 } .note { fill: #4a5568; font-size: 11px }
    .grid { stroke: #c4ccd8 } .range { stroke: #8792a2; stroke-width: 2 }
    .half { fill: #2f7d46 } .ninety { fill: #b3741b } .most { fill: #b3421b }
    .busy { fill: #7fa6d9 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #a9b4c2 }
      .grid { stroke: #39414d } .range { stroke: #6d7888 }
      .half { fill: #4cb56b } .ninety { fill: #e0a04b } .most { fill: #ee7b4f }
      .busy { fill: #3d6ba6 }
    }
"""


def svg(outcomes: dict[str, Outcome]) -> str:
    """The picture: each rule's waits on one axis, and its GPUs that were busy on each day."""
    row, top = 36, 78
    middle = top + row * len(outcomes) + 24
    height = middle + 58 + row * len(outcomes)
    lines = [f'<text x="{LEFT}" y="20" font-weight="bold">How long jobs wait</text>']
    for kind, right, said in (
        ("half", 0, "half wait less"),
        ("ninety", 100, "90 %"),
        ("most", 150, "99 %"),
    ):
        lines.append(f'<circle class="{kind}" cx="{LEFT + 5 + right}" cy="36" r="5"/>')
        lines.append(f'<text class="note" x="{LEFT + 15 + right}" y="40">{said}</text>')
    for seconds, said in TICKS.items():
        x = _x(seconds)
        lines.append(f'<path class="grid" d="M{x:.1f} {top - 10} V{middle - 24}"/>')
        lines.append(f'<text class="note" x="{x:.1f}" y="{top - 16}">{said}</text>')
    for index, (name, found) in enumerate(outcomes.items()):
        y = top + row * index
        marks = [quantile(found.waits.values(), part) for part in (0.5, 0.9, 0.99)]
        at = [_x(each) for each in marks]
        lines.append(f'<text x="{LEFT}" y="{y + 8}">{escape(name)}</text>')
        lines.append(f'<path class="range" d="M{at[0]:.1f} {y + 18} H{at[2]:.1f}"/>')
        for kind, each in zip(("half", "ninety", "most"), at, strict=True):
            lines.append(f'<circle class="{kind}" cx="{each:.1f}" cy="{y + 18}" r="5"/>')
    lines += [
        f'<text x="{LEFT}" y="{middle + 14}" font-weight="bold">GPUs that are busy, by day</text>',
        f'<text class="note" x="{LEFT}" y="{middle + 30}">A full bar is 100 % of 64 GPUs.</text>',
    ]
    for index, (name, found) in enumerate(outcomes.items()):
        y, step = middle + 42 + row * index, (RIGHT - LEFT) / len(found.busy)
        mean = f"{100 * statistics.fmean(found.busy):.1f} %"
        lines.append(f'<text x="{LEFT}" y="{y + 8}">{escape(name)}: {mean}</text>')
        lines.append(f'<path class="grid" d="M{LEFT} {y + 13} H{RIGHT}"/>')
        for day, share in enumerate(found.busy):
            x_, high = LEFT + step * day, 18 * share
            lines.append(
                f'<rect class="busy" x="{x_:.1f}" y="{y + 31 - high:.1f}" '
                f'width="{step - 2:.1f}" height="{high:.1f}"/>'
            )
    title = "Waits and busy GPUs of a simulated month, for each rule"
    body = "\n".join(f"  {line}" for line in lines)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"
     viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12"
     role="img" aria-labelledby="title">
  <!-- Written by bench.queue_month. -->
  <title id="title">{title}</title>
  <style>{STYLE}  </style>
  <rect class="page" width="{WIDTH}" height="{height}"/>
{body}
</svg>
"""


def _x(seconds: float) -> float:
    """Where a wait is on the axis; one of less than a minute is at its beginning."""
    part = math.log(max(seconds, FIRST_S) / FIRST_S) / math.log(LAST_S / FIRST_S)
    return LEFT + 5 + (RIGHT - LEFT - 10) * part


def main() -> int:
    """Simulate the month for each rule; write the table and the picture."""
    jobs = month()
    print(f"{len(jobs):,} jobs of {len({job.user for job in jobs})} users")
    outcomes = {}
    for name, rule in RULES.items():
        outcomes[name] = run(jobs, rule)
        print(name, flush=True)
    found = table(jobs, outcomes)
    print(found)
    PAGE.write_text(replace_between(PAGE.read_text(), BEGIN, found, END))
    PAGE.with_name(PICTURE).write_text(svg(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
