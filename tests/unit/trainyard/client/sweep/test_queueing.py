import threading
from unittest.mock import Mock

import pytest

from trainyard.client.errors import ClientError, UnreachedError
from trainyard.client.job_server import Job, Status
from trainyard.client.outputs import Node
from trainyard.client.sweep.point import Point
from trainyard.client.sweep.queueing import AHEAD, LetGoError, Queue

NODES = [Node(name="w", group="", cpus=2, gpus=0, memory_mib=1, object_store_mib=1, resources={})]
DONE = Job(status=Status.SUCCEEDED)


def points(count, cpus=1.0):
    return [
        Point(number=i, overrides=(f"x={i}",), identity=str(i), folder=str(i), bundle={"CPU": cpus})
        for i in range(count)
    ]


class Cluster:
    """Jobs that end when a test says so."""

    def __init__(self):
        self.sent, self.ended = [], []
        self.gates = {}
        self.full = threading.Event()  # as many are sent as there is room for

    def send(self, point):
        self.sent.append(point.number)
        self.gates.setdefault(point.number, threading.Event())
        if len(self.sent) == 2 + AHEAD:
            self.full.set()
        return f"job{point.number}"

    def follow(self, point, _):
        self.gates[point.number].wait(10)
        return DONE

    def end(self, point, job_id, job):
        self.ended.append((point.number, job_id, job))

    def queue(self):
        return Queue(NODES, self.send, self.follow, self.end)


def test_as_many_as_there_is_room_for_and_the_rest_waits(capsys):
    cluster = Cluster()
    running = threading.Thread(target=cluster.queue().run, args=(points(6), []))
    running.start()
    assert cluster.full.wait(10)
    assert cluster.sent == [0, 1, 2, 3]  # two run, two start as soon as there is room
    for i in range(6):
        cluster.gates.setdefault(i, threading.Event()).set()
    running.join(10)
    assert sorted(number for number, _, _ in cluster.ended) == list(range(6))
    assert "points: 4 sent, 2 in the queue until the cluster has room" in capsys.readouterr().out


def test_one_that_is_not_taken_stops_no_other():
    cluster = Cluster()
    send = cluster.send

    def refuse(point):
        if point.number == 0:
            raise ClientError("no")
        return send(point)

    cluster.gates[1] = threading.Event()
    cluster.gates[1].set()
    Queue(NODES, refuse, cluster.follow, cluster.end).run(points(2), [])
    assert cluster.ended == [(0, "", "no"), (1, "job1", DONE)]


def test_a_job_server_that_is_lost_fails_no_point_of_the_queue():
    cluster, lost = Cluster(), Mock(side_effect=UnreachedError("does not answer"))
    with pytest.raises(UnreachedError):
        Queue(NODES, lost, cluster.follow, cluster.end).run(points(3), [])
    assert cluster.ended == []


def test_one_that_waited_for_too_long_is_queued_again():
    cluster = Cluster()
    late = Job(
        status=Status.FAILED, message="Job supervisor actor failed to start within 900 seconds."
    )
    answers = [late, DONE]
    Queue(NODES, cluster.send, lambda *_: answers.pop(0), cluster.end).run(points(1), [])
    assert cluster.sent == [0, 0]
    assert cluster.ended == [(0, "job0", DONE)]


def test_ctrl_c_tells_what_goes_on_and_what_was_not_sent(monkeypatch):
    cluster = Cluster()
    monkeypatch.setattr("trainyard.client.sweep.queueing.wait", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(LetGoError) as let_go:
        cluster.queue().run(points(6), [])
    assert let_go.value.jobs == ["job0", "job1", "job2", "job3"]
    assert let_go.value.waiting == 2
    for gate in cluster.gates.values():
        gate.set()
