"""Each rule of the queue's order, by small situations that Hypothesis draws."""

import itertools
import random
import time
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.queue.order import PATIENCE_S, Entry, Quota, Rules, gpus, plan

HOUR = 3600.0
NEVER = float("inf")
NOW = 1000.0
RULES = Rules(half_life_s=24 * HOUR, backfill=False, preempt=False, quotas={})


def entry(name, count=1, **more):
    """A job of one bundle with so many GPUs."""
    return Entry(
        **{"name": name, "user": "alice", "priority": 0, "queued": 0.0}
        | {"bundles": ({"GPU": float(count)},)}
        | more
    )


def gpu_nodes(*counts):
    return [{"CPU": 8.0, "GPU": float(count)} for count in counts]


def fit(entries, nodes):
    """Whether all bundles of all jobs fit at once: tries all ways, and shares no code with ours."""
    bundles = [(b.get("GPU", 0), b.get("CPU", 0)) for each in entries for b in each.bundles]
    states = {tuple((node["GPU"], node["CPU"]) for node in nodes)}
    for wanted in sorted(bundles, reverse=True):
        states = {
            tuple(sorted([*state[:i], (has[0] - wanted[0], has[1] - wanted[1]), *state[i + 1 :]]))
            for state in states
            for i, has in enumerate(state)
            if has[0] >= wanted[0] and has[1] >= wanted[1]
        }
    return bool(states)


USER = st.sampled_from("ab")
BOUND = st.sampled_from(["a", "b", "", "@g", "@h"])
BOTH = frozenset("ab")
GROUPS = st.sampled_from([{}, {"g": BOTH}, {"g": frozenset("a"), "h": BOTH}])
AFTER = st.sampled_from([(), (), (), ("gone",), ("r0",)])
SECONDS = st.none() | st.integers(1, 9).map(float)
SMALL = st.sampled_from(
    [
        ({"GPU": 1.0},),
        ({"GPU": 2.0},),
        ({"GPU": 1.0},) * 2,
        ({"CPU": 5.0}, {"GPU": 1.0, "CPU": 3.5}),
    ]
)


@st.composite
def situations(draw, said=True, **rules):
    """Nodes on which jobs run, a first job that wants several of their GPUs, and small ones."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    busy = draw(st.integers(1, 3))
    slots = enumerate(node for node, size in enumerate(sizes) for _ in range(size))
    runs = {"user": USER, "priority": st.integers(7, 10), "preemptible": st.booleans()}
    runs = st.fixed_dictionaries(runs | {"seconds": SECONDS})
    running = [
        entry(f"r{i}", started=NOW, on=(node,), **draw(runs))
        for i, node in slots
        if draw(st.integers(0, busy))
    ]
    waits = {"user": USER, "priority": st.integers(0, 1), "bundles": SMALL, "after": AFTER}
    waits = st.fixed_dictionaries(waits | {"seconds": SECONDS if said else st.none()})
    waiting = [entry(f"w{i}", **draw(waits)) for i in range(draw(st.integers(1, 5)))]
    wide = ({"GPU": 1.0},) * draw(st.integers(1, sum(sizes)))
    bundles = draw(st.sampled_from([({"GPU": float(max(sizes))},), wide]))
    first = entry("first", user="a", priority=9, bundles=bundles)
    few, hours = [1.0, 2.0, gpus(first) + 1], [2 / 3600, 9 / 3600]
    quota = [*(Quota(gpus=n) for n in few), *(Quota(gpu_hours_week=n) for n in hours)]
    return SimpleNamespace(
        waiting=[first, *waiting],
        running=running,
        nodes=gpu_nodes(*sizes),
        use={user: draw(st.integers(0, 9)) * HOUR for user in "ab"},
        rules=replace(
            RULES,
            quotas=draw(st.dictionaries(BOUND, st.sampled_from(quota))),
            groups=draw(GROUPS),
            **rules,
        ),
        now=NOW,
        ended=["gone"],
    )


def cases(**rules):
    """Situations in which some rules hold, and others are drawn."""
    drawn = [
        situations(**{"backfill": backfill, "preempt": preempt} | rules)
        for backfill, preempt in itertools.product([False, True], repeat=2)
    ]
    return st.one_of(drawn)


def left_of(case, jobs, on):
    """What jobs leave of the nodes on which they are."""
    left = [dict(node) for node in case.nodes]
    for each in jobs:
        for node, bundle in zip(on.get(each.name, each.on), each.bundles, strict=True):
            for name, amount in bundle.items():
                left[node][name] -= amount
    return left


def planned(case):
    return plan(**vars(case))


def split(case, found):
    """The jobs that start, and those that wait for room, in order."""
    known = {each.name: each for each in case.waiting}
    room = [known[e.name] for e in found.waiting if e.reason.startswith(("waits", "starts"))]
    return [known[name] for name in found.start], room


@settings(max_examples=150, deadline=None)
@given(cases(), st.booleans())
def test_nothing_is_given_twice_and_all_bundles_start_or_none(case, known):
    if not known:
        case.running = [replace(each, on=()) for each in case.running]
    found = planned(case)
    starting, _ = split(case, found)
    assert sorted([*found.start, *(e.name for e in found.waiting)]) == [
        each.name for each in case.waiting
    ]
    assert [each.place for each in found.waiting] == [*range(1, len(found.waiting) + 1)]
    assert fit([*case.running, *starting], case.nodes)
    assert [len(found.on[each.name]) for each in starting] == [len(e.bundles) for e in starting]
    if known:
        left = left_of(case, [*case.running, *starting], found.on)
        assert min(amount for node in left for amount in node.values()) >= 0


@settings(max_examples=150, deadline=None)
@given(cases(backfill=False, preempt=False))
def test_no_job_passes_one_of_higher_priority_that_could_start(case):
    found = planned(case)
    starting, room = split(case, found)
    assert all(a.priority >= b.priority for a in starting for b in room)
    assert sorted(room, key=lambda each: -each.priority) == room
    reasons = {each.name: each.reason for each in found.waiting}
    named = {each.name for each in (*starting, *room)}
    for held in (each for each in case.waiting if each.name not in named):
        why = reasons[held.name]
        assert (
            ("after job r0" in why and held.after == ("r0",))
            or ("quota: " in why and gpus(held) and case.rules.quotas)
            or ("no nodes" in why and not fit([held], case.nodes))
        )


def first_begins(case, first, backfill, lasts):
    """When a job starts, in a world of its own in which jobs take as long as they take."""
    rules = replace(case.rules, backfill=backfill)
    waiting, running, now = case.waiting, case.running, NOW
    while True:
        found = plan(waiting, running, case.nodes, case.use, rules, now, case.ended)
        if first in found.start:
            return now
        begun = [
            replace(e, started=now, on=found.on[e.name]) for e in waiting if e.name in found.on
        ]
        waiting = [each for each in waiting if each.name not in found.on]
        running = [*running, *begun]
        ends = {each.name: each.started + lasts[each.name] for each in running}
        now = min(ends.values(), default=NEVER)
        if now == NEVER:
            return NEVER
        running = [each for each in running if ends[each.name] > now]


@pytest.mark.parametrize("said", [True, False])
def test_backfill_never_delays_the_first(said):
    """If all keep to what they say; and by jobs that do not say it, whenever others end."""

    @settings(max_examples=150, deadline=None)
    @given(situations(said), st.data())
    def never_delays(case, data):
        lasts = {each.name: each.seconds or NEVER for each in (*case.waiting, *case.running)}
        if not said:
            lasts |= {each.name: data.draw(st.integers(1, 9)) for each in case.running}
        alone = first_begins(case, "first", False, lasts)
        assert first_begins(case, "first", True, lasts) <= alone

    never_delays()


def test_others_pass_a_first_job_for_hours_while_nobody_can_know_when_it_starts():
    rules, nodes = replace(RULES, backfill=True), gpu_nodes(4)
    running, first = [entry("r", 2, started=NOW)], entry("first", 3, queued=NOW)
    small = [entry("low", priority=-1), entry("small", queued=NOW + 1)]

    def started(later, runs=running):
        return plan([first, *small], runs, nodes, {}, rules, NOW + later).start

    assert started(1.0) == ("small",)
    assert started(PATIENCE_S) == ()
    assert started(1.0, [entry("r", 2, started=NOW, seconds=HOUR)]) == ()


def test_a_job_that_needs_none_of_what_the_first_will_use_starts_beside_it():
    jobs = [entry("first", 3), entry("cpus", priority=-1, bundles=({"CPU": 8.0},))]
    running, rules = [entry("r", 2, started=NOW)], replace(RULES, backfill=True)
    assert plan(jobs, running, gpu_nodes(4), {}, rules, NOW).start == ("cpus",)


def test_what_the_first_leaves_is_given_once():
    running = [entry("r", 2, started=NOW, seconds=5.0)]
    jobs = [entry("first", 3, priority=1), *(entry(f"b{i}", seconds=9.0) for i in (1, 2))]
    jobs.append(entry("b3", seconds=5.0))
    found = plan(jobs, running, gpu_nodes(4), {}, replace(RULES, backfill=True), NOW)
    assert found.start == ("b1", "b3")


@settings(max_examples=150, deadline=None)
@given(cases(preempt=True, backfill=False))
def test_only_lower_priority_is_preempted_and_as_few_as_will_do(case):
    found = planned(case)
    starting, room = split(case, found)
    victims = [each for each in case.running if each.name in found.preempt]
    assert len(victims) == len(found.preempt)
    if not room:
        assert not victims
        return
    may = [e for e in case.running if e.preemptible and e.priority < room[0].priority]
    assert all(victim in may for victim in victims)

    def suffices(gone):
        stay = [each for each in (*case.running, *starting) if each not in gone]
        return fit([room[0]], left_of(case, stay, found.on))

    sets = (few for n in range(len(may) + 1) for few in itertools.combinations(may, n))
    assert len(victims) == len(next(filter(suffices, sets), ()))
    assert not victims or suffices(victims)


def test_the_youngest_are_preempted_first():
    running = [entry(f"r{i}", 1, started=float(i), priority=-1) for i in range(4)]
    rules = replace(RULES, preempt=True)
    found = plan([entry("a", 2)], running, gpu_nodes(4), {}, rules, NOW)
    assert found.preempt == ("r3", "r2")
    assert found.waiting[0].reason == "starts when r3, r2 stopped for it (place 1)"
    # One old job that holds two is fewer.
    running = [replace(running[0], bundles=({"GPU": 2.0},)), *running[2:]]
    assert plan([entry("a", 2)], running, gpu_nodes(4), {}, rules, NOW).preempt == ("r0",)


def test_of_many_that_are_preempted_none_is_superfluous():
    nodes = gpu_nodes(*[8] * 8)
    running = [entry(f"r{i:02}", started=float(i), priority=-1, on=(i % 8,)) for i in range(64)]
    job = entry("a", bundles=({"GPU": 8.0},) * 2)
    found = plan([job], running, nodes, {}, replace(RULES, preempt=True), NOW)
    assert len(found.preempt) == 16
    assert len({int(name[1:]) % 8 for name in found.preempt}) == 2


@settings(max_examples=300, deadline=None)
@given(cases())
def test_no_user_and_no_group_exceeds_its_quota(case):
    week = {"a": 1 / 3600}
    found = plan(**vars(case), week=week)
    starting, _ = split(case, found)
    quotas = case.rules.quotas
    bounds = [({user}, quotas.get(user) or quotas.get("")) for user in "ab"]
    bounds += [(users, quotas.get(f"@{group}")) for group, users in case.rules.groups.items()]
    for users, quota in ((users, quota) for users, quota in bounds if quota):
        mine = [each for each in starting if each.user in users and gpus(each)]
        running = [each for each in case.running if each.user in users]
        if mine and quota.gpus is not None:
            assert sum(map(gpus, (*mine, *running))) <= quota.gpus
        if mine and quota.gpu_hours_week is not None:
            more = sum(gpus(e) * (e.seconds or 0) for e in mine)
            more += sum(gpus(e) * max(0, e.started + (e.seconds or 0) - NOW) for e in running)
            before = sum(week.get(user, 0) for user in users)
            assert before + more / HOUR <= quota.gpu_hours_week + 1e-9


@settings(max_examples=100, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(case, rng):
    case.running = [replace(each, on=()) for each in case.running]
    expected = planned(case)
    rng.shuffle(case.waiting)
    rng.shuffle(case.running)
    case.use = dict(sorted(case.use.items(), reverse=True))
    assert planned(case) == expected


def world(jobs, nodes, hours, use=()):
    """Play some hours in which each user of `jobs` (GPUs by user) always has one that waits."""
    rng = random.Random(7)
    use, running, ends, now = defaultdict(float, use), {}, {}, 0.0
    waiting = {user: entry(f"{user}-0", count, user=user) for user, count in jobs.items()}
    while now < hours * HOUR:
        found = plan([*waiting.values()], [*running.values()], nodes, use, RULES, now)
        for job in [each for each in waiting.values() if each.name in found.start]:
            yield now, job
            running[job.name] = replace(job, started=now, on=found.on[job.name])
            ends[job.name] = now + rng.uniform(0.5, 1.5) * HOUR
            number = int(job.name.partition("-")[2]) + 1
            waiting[job.user] = replace(job, name=f"{job.user}-{number}", queued=now)
        if len(found.start) == 0:
            name = min(ends, key=lambda each: (ends[each], each))
            spent = ends.pop(name) - now
            kept = 0.5 ** (spent / RULES.half_life_s)
            use = defaultdict(float, {user: each * kept for user, each in use.items()})
            for each in running.values():
                use[each.user] += gpus(each) * spent
            now += spent
            del running[name]


def test_users_who_always_wait_get_equal_shares_whatever_the_size_of_their_jobs():
    got = defaultdict(float)
    for _, job in world({"a": 1, "b": 2, "c": 4}, gpu_nodes(8), hours=400):
        got[job.user] += gpus(job)  # jobs are equally long on average
    assert max(got.values()) < 1.15 * min(got.values())


def test_a_large_job_of_a_user_who_used_much_starts_though_small_ones_never_end():
    used = {"big": 100 * HOUR * 24}
    begun = [
        now
        for now, job in world({"a": 1, "b": 1, "c": 1, "big": 4}, gpu_nodes(4), 400, used)
        if job.user == "big"
    ]
    assert begun[0] < 8 * RULES.half_life_s
    assert len(begun) > 10


def test_who_used_less_is_first_and_who_runs_now_counts():
    nodes = gpu_nodes(2)
    jobs = [entry("a1", 2, user="a"), entry("b1", 2, user="b", queued=1.0)]
    assert plan(jobs, [], nodes, {}, RULES, NOW).start == ("a1",)
    assert plan(jobs, [], nodes, {"a": 1.0}, RULES, NOW).start == ("b1",)
    jobs = [replace(each, bundles=({"GPU": 1.0},)) for each in jobs]
    for bundle, all_gpus in (({"GPU": 1.0}, 2), ({"CPU": 1.0}, 1)):
        running = [entry("a0", user="a", started=0.0, bundles=(bundle,))]
        assert plan(jobs, running, gpu_nodes(all_gpus), {}, RULES, NOW).start == ("b1",)
    # Each that starts counts at once, so the users take turns.
    more = [entry(f"a{i}", user="a", queued=i * 0.1) for i in range(4)] + jobs[1:]
    assert plan(more, [], nodes, {}, RULES, NOW).start == ("a0", "b1")


def test_why_jobs_wait_is_said_in_words_and_when_they_begin():
    quotas = {"bob": Quota(gpus=2), "carol": Quota(gpu_hours_week=10), "@lab": Quota(gpus=3)}
    quotas |= {"@old": Quota(gpu_hours_week=8)}
    groups = {"lab": frozenset({"bob", "dora"}), "old": frozenset({"eva", "carol"})}
    running = [
        entry("r1", 2, user="bob", started=NOW - 50, seconds=150.0),
        entry("r2", 1, user="alice", started=NOW, seconds=300.0),
    ]
    waiting = [
        entry("two", 2, queued=1.0, seconds=60.0),
        entry("three", 3, queued=2.0),
        entry("then", queued=3.0),
        entry("b", user="bob", queued=4.0),
        entry("late", after=("r1", "old", "x"), queued=5.0),
        entry("huge", 64, queued=0.0),
        entry("xpu", bundles=({"XPU": 1.0},), queued=0.0),
        entry("c", 2, user="carol", queued=6.0, seconds=HOUR),
        entry("d", 2, user="dora", queued=7.0),
        entry("e", 1, user="eva", queued=8.0),
    ]
    rules = replace(RULES, quotas=quotas, groups=groups)
    found = plan(waiting, running, gpu_nodes(4), {}, rules, NOW, ["old"], {"carol": 8.5})
    assert not found.start
    assert [(each.name, each.reason, each.begins) for each in found.waiting] == [
        ("two", "waits for GPU 2 (place 1)", NOW + 100),
        ("three", "waits for GPU 3 (place 2)", NOW + 160),
        ("then", "waits for its turn (place 3)", None),
        ("huge", "no nodes with room for GPU 64", None),
        ("xpu", "no nodes with room for XPU 1", None),
        ("b", "quota: bob has 2 of 2 GPUs", None),
        ("late", "after job r1, x", None),
        ("c", "quota: carol has 8.5 of 10 GPU-hours a week and asks for 2.0", None),
        ("d", "quota: @lab has 2 of 3 GPUs and asks for 2", None),
        ("e", "quota: @old has 8.5 of 8 GPU-hours a week", None),
    ]
    for nodes in ([], gpu_nodes(1, 1)):
        (one,) = plan([entry("a", 2)], [], nodes, {}, RULES, NOW).waiting
        assert one.reason == "no nodes with room for GPU 2"
    running = [entry(f"r{i}", started=0.0, on=(i,)) for i in (0, 1)]
    (one,) = plan([entry("a", 2)], running, gpu_nodes(2, 2), {}, RULES, NOW).waiting
    assert one.reason == "waits for nodes with room for GPU 2 (place 1)"


def test_the_quota_of_all_others_bounds_each_user_and_no_group():
    rules = replace(RULES, quotas={"": Quota(gpus=1)}, groups={"lab": frozenset({"bob", "eva"})})
    jobs = [entry(user, user=user) for user in ("bob", "eva")]
    assert plan(jobs, [], gpu_nodes(4), {}, rules, NOW).start == ("bob", "eva")


def test_a_job_whose_node_was_lost_holds_nothing_of_the_others():
    running = [entry("r1", 4, started=0.0), entry("r2", 4, started=0.0)]
    assert not plan([entry("a", 4)], running, gpu_nodes(4), {}, RULES, NOW).start
    assert plan([entry("a", 4)], running[:1], gpu_nodes(4, 4), {}, RULES, NOW).start == ("a",)
    # All are counted where they are not known, if they fit in any way.
    three = [entry(f"r{i}", count, started=0.0) for i, count in enumerate((2, 3, 4))]
    assert not plan([entry("a")], three, gpu_nodes(4, 5), {}, RULES, NOW).start
    # Its node's index is one of another list: it counts where it fits.
    lost = [replace(running[0], on=(7,))]
    assert not plan([entry("a", 4)], lost, gpu_nodes(4), {}, RULES, NOW).start


@pytest.mark.parametrize("kinds", [1, 10_000])
def test_ten_thousand_jobs_on_64_nodes_are_planned_in_about_a_second(kinds):
    rng = random.Random(1)
    waiting = [
        entry(
            f"w{i}",
            bundles=({"GPU": float(min(count, 8)), "memory": float(rng.randrange(kinds))},)
            * max(1, count // 8),
            user=f"u{i % 100}",
            seconds=rng.uniform(1, 1e5),
        )
        for i, count in enumerate(rng.choices((1, 2, 4, 8, 16), k=10_000))
    ]
    said = [rng.uniform(1, 1e5) for _ in range(508)]
    running = [entry(f"r{i}", priority=-1, started=0.0, seconds=s) for i, s in enumerate(said)]
    nodes = [{"GPU": 8.0, "memory": 1e6}] * 64
    quotas = {"": Quota(gpus=16), **{f"@{i}": Quota(gpus=999) for i in range(10)}}
    groups = {str(i): frozenset(f"u{i + 10 * j}" for j in range(10)) for i in range(10)}
    rules = replace(RULES, backfill=True, preempt=True, quotas=quotas, groups=groups)
    began = time.process_time()
    found = plan(waiting, running, nodes, {}, rules, NOW)
    assert time.process_time() - began < 2  # 0.5 on a quiet machine
    assert len(found.start) + len(found.waiting) == 10_000
