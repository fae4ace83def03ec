"""Which requests fit the declared nodes."""

import itertools
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.client.errors import ClientError
from trainyard.client.feasibility import check_fits, price, remedy, shortfall, started
from trainyard.client.outputs import Node
from trainyard.packing import MIB


def node(name, cpus, gpus=0, memory_mib=1024):
    return Node(
        name=name,
        group="",
        cpus=cpus,
        gpus=gpus,
        memory_mib=memory_mib,
        object_store_mib=256,
        resources={},
    )


def test_the_groups_that_have_to_be_started_are_named():
    always = node("always", 2)
    cpu = replace(node("a", 4), group="cpu", on_demand=True)
    gpu = replace(node("b", 8, gpus=1), group="gpu", on_demand=True)
    nodes = (always, cpu, cpu, gpu)
    for bundles, groups in (
        ([{"CPU": 2.0}], []),
        ([{"CPU": 3.0}], ["cpu", "gpu"]),
        ([{"CPU": 2.0}, {"CPU": 2.0}], ["cpu", "gpu"]),
        ([{"GPU": 1.0}], ["gpu"]),
    ):
        assert shortfall(bundles, nodes) is None
        assert started(bundles, nodes) == groups


def test_what_rented_nodes_cost_is_said_of_as_few_as_will_do():
    rented = replace(node("a", 4), group="gpu", on_demand=True, hourly_cost=0.75)
    nodes = (node("always", 2), *[rented] * 4)
    for count, expected in ((1, (1, 0.75)), (3, (3, 2.25)), (4, (4, 3.0))):
        assert price([{"CPU": 3.0}] * count, nodes, "gpu") == expected
    assert price([{"CPU": 2.0}, {"CPU": 2.0}], nodes, "gpu") == (1, 0.75)


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
def test_what_fits(bundles, stack):
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
def test_what_no_node_holds_names_the_largest(bundle, message, stack):  # F29
    why = shortfall([bundle], stack.nodes)

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
def test_the_setting_that_makes_it_fit_is_named(bundles, what, stack):  # D37
    assert re.search(what, remedy(bundles, stack.nodes))


def test_what_each_of_two_nodes_has_is_asked_of_one():
    nodes = [node("a", cpus=8), node("b", cpus=1, gpus=1)]
    assert "set worker.cpus to 8, worker.gpus to 1" in remedy([{"CPU": 8.0, "GPU": 1.0}], nodes)


def test_what_fits_only_one_by_one_is_refused(stack):  # F29
    why = shortfall([{"GPU": 1.0, "CPU": 1.0}] * 2, stack.nodes)
    assert "2 bundles at the same time" in why
    assert "have GPU 1, CPU 6 in all" in why


def test_no_nodes_at_all():
    assert "declares no node" in str(shortfall([{"CPU": 1}], []))


A_AND_B = [node("a", 10), node("b", 10)]


@pytest.mark.parametrize(
    ("bundles", "nodes", "fits"),
    [
        ([{"CPU": 0.1}] * 3, [node("a", 0.3)], True),  # no exact floats
        # The large one goes where the small ones leave room.
        ([{"CPU": 4.0}, *[{"CPU": 1.0}] * 8], [node("a", 8), node("b", 4)], True),
        ([{"CPU": float(cpus)} for cpus in (5, 4, 4, 3, 2, 2)], A_AND_B, True),  # F29
        ([{"CPU": float(cpus)} for cpus in (7, 7, 3, 2)], A_AND_B, True),
        ([{"CPU": float(cpus)} for cpus in (6, 6, 3, 3, 2)], A_AND_B, False),
        *(([{"GPU": amount}], [node("a", 1)], True) for amount in (1e-7, 4.9e-5)),  # not counted
        *(([{"GPU": x, "CPU": 1.0}] * 2, [node("a", 1)], False) for x in (1e-7, 4.9e-5)),
        ([{"CPU": 1.0}] * 6, [node("a", 2), node("b", 4)], True),
        ([{"CPU": 1.0}] * 7, [node("a", 2), node("b", 4)], False),  # with an entrypoint's
    ],
)
def test_what_fits_together(bundles, nodes, fits):
    assert (shortfall(bundles, nodes) is None) == fits


def test_thousands_of_bundles_are_answered_at_once():
    nodes = [node(f"n{i}", 64) for i in range(64)]
    assert shortfall([{"CPU": 1.0}] * 4097, nodes) is not None


def test_what_takes_too_long_to_find_out_is_not_refused():
    nodes = [node(f"n{i}", 100 + i, gpus=50 + i) for i in range(12)]
    bundles = [{"CPU": 10.0 + i % 17, "GPU": 1.0 + i % 11} for i in range(76)]
    started = time.perf_counter()
    shortfall(bundles, nodes)
    assert time.perf_counter() - started < 10


def test_an_infeasible_request_says_what_to_do(stack):  # F29 D37
    with pytest.raises(ClientError, match=r"largest, worker-1, .*'dev'.*make up.*--force"):
        check_fits([{"GPU": 2.0}], stack)
    with pytest.raises(ClientError, match="ask for less, add a node to the cluster, or queue"):
        check_fits([{"GPU": 2.0}], replace(stack, project=""))


def test_what_has_to_be_started_is_named_with_its_price(stack, capsys):
    free = replace(stack.nodes[-1], cpus=64, group="big", on_demand=True)
    rented = replace(free, group="gpu", gpus=4, hourly_cost=1.25)
    grown = replace(stack, nodes=(*stack.nodes, free, rented, rented))
    check_fits([{"GPU": 4.0}, {"GPU": 4.0}], grown)
    said = "".join(capsys.readouterr())
    assert "needs nodes on demand, of gpu (2 or more: 2.50 $/h):" in said
    assert "(by `make scale STACK=dev`, which has to run)" in said
    local = replace(stack, nodes=(*stack.nodes, free))
    check_fits([{"CPU": 60.0}], local)
    said = "".join(capsys.readouterr())
    assert "needs nodes on demand, of big:" in said
    assert "make scale" not in said


AMOUNTS = st.fixed_dictionaries({"CPU": st.integers(0, 5), "GPU": st.sampled_from([0, 0.5, 1])})
SIZES = st.tuples(st.integers(0, 10), st.integers(0, 2))


@settings(max_examples=200)
@given(st.lists(AMOUNTS, max_size=6), st.lists(SIZES, min_size=1, max_size=3))
def test_a_request_is_refused_exactly_when_there_is_no_place(asked, sizes):
    def held(place, i, name):
        return sum(bundle[name] for bundle, p in zip(asked, place, strict=True) if p == i)

    possible = any(
        all(
            held(place, i, "CPU") <= cpus and held(place, i, "GPU") <= gpus
            for i, (cpus, gpus) in enumerate(sizes)
        )
        for place in itertools.product(range(len(sizes)), repeat=len(asked))
    )
    nodes = [node(f"n{i}", cpus, gpus=gpus) for i, (cpus, gpus) in enumerate(sizes)]
    assert (shortfall(asked, nodes) is None) == possible


@given(st.integers(1, 12), st.integers(1, 3), st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_equal_workers_are_judged_exactly(workers, each, sizes):
    nodes = [node(f"n{i}", size) for i, size in enumerate(sizes)]
    room = sum(size // each for size in sizes)
    assert (shortfall([{"CPU": float(each)}] * workers, nodes) is None) == (workers <= room)
