"""Which requests fit the declared nodes."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.client.feasibility import MIB, Bundle, remedy, shortfall
from training.client.outputs import Node, StackOutputs


def node(name: str, cpus: float, gpus: float = 0, memory_mib: float = 1024) -> Node:
    return Node(
        name=name,
        cpus=cpus,
        gpus=gpus,
        memory_mib=memory_mib,
        object_store_mib=256,
        resources={},
    )


@pytest.mark.parametrize(
    "bundles",
    [
        [],
        [{}],
        [{"CPU": 0, "GPU": 0}],
        [{"CPU": 4, "GPU": 1, "TPU": 4, "memory": 1024 * MIB}],
        [{"CPU": 2}, {"CPU": 4, "GPU": 1}],
        [{"CPU": 0.1}] * 60,
        [{"GPU": 0.5, "CPU": 2}] * 2,
    ],
)
def test_what_fits(bundles: list[Bundle], stack: StackOutputs) -> None:
    assert shortfall(bundles, stack.nodes) is None


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        ({"GPU": 2}, r"asks for GPU 2 on one node.*worker-1, has CPU 4, GPU 1"),  # D36
        ({"CPU": 5}, r"asks for CPU 5 on one node.*worker-1, has CPU 4, GPU 1"),
        ({"memory": 2048 * MIB}, r"asks for memory 2048 MiB.*has CPU 4, GPU 1, memory 1024 MiB"),
        ({"CPU": 1, "XPU": 1}, r"asks for CPU 1, XPU 1.*has CPU 4, GPU 1, XPU 0"),
    ],
)
def test_what_no_node_holds_names_the_largest(  # F29
    bundle: Bundle, message: str, stack: StackOutputs
) -> None:
    why = shortfall([bundle], stack.nodes)
    assert why is not None

    assert re.search(message, why), why


@pytest.mark.parametrize(
    ("bundles", "what"),
    [
        ([{"GPU": 2.0}], "set worker.gpus to 2 in .*, or add a host that has GPU 2$"),
        ([{"CPU": 1.0}, {"CPU": 8.0, "GPU": 2.0}], "set worker.cpus to 8, worker.gpus to 2 in"),
        ([{"CPU": 4.0, "TPU": 8.0}], "set TPU of worker.resources to 8 in"),
        ([{"memory": 4096.0 * MIB}], "set worker.memoryMib to 4096 in"),
        ([{"GPU": 1.0}] * 2, "set workers to a larger number"),
    ],
)
def test_the_setting_that_makes_it_fit_is_named(  # D37
    bundles: list[Bundle], what: str, stack: StackOutputs
) -> None:
    assert re.search(what, remedy(bundles, stack.nodes))


def test_what_each_of_two_nodes_has_is_asked_of_one() -> None:
    nodes = [node("a", cpus=8), node("b", cpus=1, gpus=1)]
    assert "set worker.cpus to 8, worker.gpus to 1" in remedy([{"CPU": 8.0, "GPU": 1.0}], nodes)


def test_what_fits_only_one_by_one_is_refused(stack: StackOutputs) -> None:  # F29
    why = shortfall([{"GPU": 1.0, "CPU": 1.0}] * 2, stack.nodes)
    assert why is not None
    assert "2 bundles at the same time" in why
    assert "have GPU 1, CPU 6 in all" in why


def test_the_entrypoint_counts_beside_the_workers(stack: StackOutputs) -> None:
    workers = [{"CPU": 1.0}] * 6
    assert shortfall(workers, stack.nodes) is None
    assert shortfall([{"CPU": 1.0}, *workers], stack.nodes) is not None


def test_no_nodes_at_all() -> None:
    assert "declares no node" in str(shortfall([{"CPU": 1}], []))


def test_amounts_that_are_no_exact_floats_fit() -> None:
    assert shortfall([{"CPU": 0.1}] * 3, [node("a", 0.3)]) is None


def test_the_large_bundle_may_go_where_the_small_ones_leave_room() -> None:
    nodes = [node("a", 8), node("b", 4)]
    assert shortfall([{"CPU": 4.0}, *[{"CPU": 1.0}] * 8], nodes) is None


def test_thousands_of_bundles_are_answered_at_once() -> None:
    nodes = [node(f"n{i}", 64) for i in range(64)]
    started = time.perf_counter()
    assert shortfall([{"CPU": 1.0}] * 4097, nodes) is not None
    assert time.perf_counter() - started < 10


@given(
    st.lists(st.integers(1, 4), max_size=5),
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
)
def test_never_accepts_what_cannot_be_placed(asked: list[int], sizes: list[int]) -> None:
    places = itertools.product(range(len(sizes)), repeat=len(asked))
    possible = any(
        all(
            sum(a for a, p in zip(asked, place, strict=True) if p == i) <= s
            for i, s in enumerate(sizes)
        )
        for place in places
    )
    nodes = [node(f"n{i}", size) for i, size in enumerate(sizes)]
    accepted = shortfall([{"CPU": float(a)} for a in asked], nodes) is None
    assert possible or not accepted


@given(st.integers(1, 12), st.integers(1, 3), st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_equal_workers_are_judged_exactly(workers: int, each: int, sizes: list[int]) -> None:
    nodes = [node(f"n{i}", size) for i, size in enumerate(sizes)]
    room = sum(size // each for size in sizes)
    assert (shortfall([{"CPU": float(each)}] * workers, nodes) is None) == (workers <= room)
