"""The requests of Ray's autoscaler, by a node provider that only writes them down.

The programs of supervisord are in tests/integration/infra/test_node_switch.py.
"""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler import tags
from ray.autoscaler.node_launch_exception import NodeLaunchException

from infra.operate import scale
from node import node_provider
from node.node_provider import LAUNCHED, REQUESTED, StackNodeProvider

GROUP = ["ray-worker-1", "ray-worker-2", "ray-worker-3"]
ALWAYS = ["ray-worker-0", "ray-head"]
GPU = {tags.TAG_RAY_USER_NODE_TYPE: "gpu"}


def provider(folder: Path, *, least: int = 0, group: list[str] | None = None) -> StackNodeProvider:
    group = group or GROUP
    settings: dict[str, Any] = {
        "requests": str(folder / "requests"),
        "head": ["ray-head", "_head"],
        "nodes": {"ray-worker-0": "_worker", **dict.fromkeys(group, "gpu")},
        "group": group,
        "least": least,
    }
    return StackNodeProvider(settings, "trainyard")


def request(made: StackNodeProvider, count: int) -> None:
    made.create_node_with_resources_and_labels({}, GPU, count, {}, {})


def requested(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "requests" / REQUESTED).read_text())
    return found


def launched(folder: Path, *names: str) -> None:
    (folder / "requests" / LAUNCHED).write_text(json.dumps(names))


def test_a_name_that_ray_still_knows_is_not_given_to_a_new_node(tmp_path):
    made = provider(tmp_path)
    request(made, 1)
    assert made.non_terminated_nodes(GPU) == ["ray-worker-1"]
    made.terminate_node("ray-worker-1")
    request(made, 1)  # before Ray has looked again
    assert requested(tmp_path) == ["ray-worker-2"]
    made.non_terminated_nodes({})
    request(made, 1)
    assert requested(tmp_path) == ["ray-worker-1", "ray-worker-2"]


def test_a_request_is_written_down_and_counts_at_once(tmp_path):
    made = provider(tmp_path)
    assert requested(tmp_path) == []
    request(made, 2)
    assert requested(tmp_path) == ["ray-worker-1", "ray-worker-2"]
    # Otherwise Ray would request them again while they boot.
    assert sorted(made.non_terminated_nodes(GPU)) == ["ray-worker-1", "ray-worker-2"]
    assert made.is_running("ray-worker-1")
    assert made.is_terminated("ray-worker-3")
    made.terminate_node("ray-worker-1")
    assert requested(tmp_path) == ["ray-worker-2"]


def test_what_is_always_there_is_neither_requested_nor_ended(tmp_path):
    made = provider(tmp_path)
    for name in ALWAYS:
        made.terminate_node(name)
        assert made.is_running(name)
    assert sorted(made.non_terminated_nodes({})) == sorted(ALWAYS)
    kind = {tags.TAG_RAY_NODE_KIND: tags.NODE_KIND_HEAD}
    assert made.non_terminated_nodes(kind) == ["ray-head"]
    with pytest.raises(NodeLaunchException):
        made.create_node_with_resources_and_labels(
            {}, {tags.TAG_RAY_USER_NODE_TYPE: "_worker"}, 1, {}, {}
        )


def test_a_machine_that_is_being_ended_is_not_requested_again(tmp_path):
    made = provider(tmp_path)
    request(made, 1)
    launched(tmp_path, "ray-worker-1")
    made.terminate_node("ray-worker-1")
    request(made, 1)
    assert requested(tmp_path) == ["ray-worker-2"]
    launched(tmp_path, "ray-worker-2")
    request(made, 1)
    assert requested(tmp_path) == ["ray-worker-1", "ray-worker-2"]


def test_never_more_than_there_may_be(tmp_path):
    made = provider(tmp_path)
    with pytest.raises(NodeLaunchException):
        request(made, 9)
    assert requested(tmp_path) == GROUP


def test_the_next_head_requests_what_the_last_one_did(tmp_path):
    request(provider(tmp_path), 2)
    assert provider(tmp_path).is_running("ray-worker-2")
    assert requested(tmp_path) == ["ray-worker-1", "ray-worker-2"]
    # Of a group that has become smaller, no more than that.
    provider(tmp_path, group=GROUP[:1])
    assert requested(tmp_path) == ["ray-worker-1"]


def test_without_a_request_what_is_launched_stays_and_the_least_is_requested(tmp_path):
    provider(tmp_path, least=1)
    assert requested(tmp_path) == ["ray-worker-1"]
    (tmp_path / "requests" / REQUESTED).write_text("[")
    launched(tmp_path, "ray-worker-3")
    provider(tmp_path, least=1)
    assert requested(tmp_path) == ["ray-worker-3"]


def test_two_threads_request_two_machines(tmp_path):
    made = provider(tmp_path)
    threads = [threading.Thread(target=request, args=(made, 1)) for _ in GROUP]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert requested(tmp_path) == GROUP


def test_a_look_at_fifty_machines_takes_a_small_part_of_a_second(tmp_path):
    made = provider(tmp_path, group=[f"ray-worker-{number}" for number in range(1, 51)])
    request(made, 50)
    begun = time.process_time()
    for name in made.non_terminated_nodes({}):  # what Ray asks once a second
        made.node_tags(name)
        made.is_running(name)
    assert time.process_time() - begun < 0.1


def test_the_command_has_the_names_of_the_files():
    assert (scale.REQUESTED, scale.LAUNCHED) == (node_provider.REQUESTED, node_provider.LAUNCHED)
