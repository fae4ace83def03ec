"""The lines of a log that a user asks for."""

import io
import tracemalloc

import pytest

from trainyard.client.log_writer import Choice, LogWriter

OF_0, OF_1 = (f"\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.{n})\x1b[0m " for n in (4, 5))
LOG = "".join(
    f"{line}\n"
    for line in (
        f"{OF_1}is begun",
        "- (ip=10.0.0.4, pid=7) world_rank=0",
        "(TrainController pid=4) - (ip=10.0.0.5, pid=7) world_rank=1, local_rank=0",
        "the driver",
        f"{OF_0}of 0",
        f"{OF_1}\x1b[1mof\x1b[0m 1",
        "(RayTrainWorker pid=8, ip=10.0.0.5) of another",
        "(RayTrainWorker pid=9) of 2",
        "- (ip=10.0.0.5, pid=9) world_rank=2",  # of a later start
        "the end",
    )
)


def chosen(*pieces, so_far=None, **asked):
    out, choice = io.StringIO(), Choice(**asked)
    if so_far is not None:
        choice.look(so_far)
    writer = LogWriter(out, verbose=True, choice=choice)
    for piece in pieces:
        writer.write(piece)
    seen = out.getvalue()
    writer.close()
    return seen, out.getvalue().splitlines(), choice


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ({"grep": "the "}, ["the driver", "the end"]),
        ({"grep": "of 1"}, [f"{OF_1}\x1b[1mof\x1b[0m 1"]),
        ({"tail": 1}, ["the end"]),
        ({"tail": 0}, []),
        ({"tail": 1, "grep": "driver"}, ["the driver"]),
        ({"worker": 0}, [f"{OF_0}of 0"]),
        ({"worker": 1}, [f"{OF_1}is begun", f"{OF_1}\x1b[1mof\x1b[0m 1"]),
        ({"worker": 1, "grep": "begun"}, [f"{OF_1}is begun"]),
        ({"worker": 2}, ["(RayTrainWorker pid=9) of 2"]),
        ({"worker": 3}, []),
    ],
)
def test_lines_are_chosen_by_text_worker_and_place(choice, found):
    for size in (1, 7, len(LOG)):
        pieces = [LOG[begin : begin + size] for begin in range(0, len(LOG), size)]
        so_far = pieces if "worker" in choice else None
        _, lines, of = chosen(*pieces, so_far=so_far, **choice)
        assert lines == found
        assert {*of.ranks} >= {0, 1, 2}


def test_a_log_that_grows_goes_on_after_its_last_lines():
    now = "one\ntwo\nthree\n"
    seen, lines, _ = chosen(now[:6], now[6:], "four\n", "fi", tail=1, so_far=[now])
    assert seen == "three\nfour\n"
    assert lines == ["three", "four", "fi"]
    assert chosen(now, "four\n", skip=2)[1] == ["three", "four"]
    assert chosen(now[:6], now[6:], "four\n", tail=2, skip=2, so_far=[now])[1] == ["three", "four"]
    assert chosen(now, "four\n", tail=0, so_far=[now])[1] == ["four"]
    assert chosen("one\n", "two\n", grep="t")[0] == "two\n"  # nothing is held back


def test_a_long_log_is_not_kept():
    def pieces():
        for number in range(400):
            yield f"{number} {'x' * 2**16}\n"

    tracemalloc.start()
    for so_far in (None, pieces()):
        _, lines, _ = chosen(*(), so_far=so_far)
    out = io.StringIO()
    last = LogWriter(out, choice=Choice(tail=2))
    for piece in pieces():
        last.write(piece)
    last.close()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [line.partition(" ")[0] for line in out.getvalue().splitlines()] == ["398", "399"]
    assert lines == []
    assert most < 2 * 2**20  # of 25 MiB
