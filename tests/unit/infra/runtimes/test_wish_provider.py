"""What Ray's autoscaler wishes for, by a node provider that only writes it down."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler import tags
from ray.autoscaler.node_launch_exception import NodeLaunchException

from infra import scale
from infra.runtimes import wish_provider
from infra.runtimes.wish_provider import THERE, WANTED, Provider

GROUP = ["ray-worker-1", "ray-worker-2", "ray-worker-3"]
ALWAYS = ["ray-worker-0", "ray-head"]
GPU = {tags.TAG_RAY_USER_NODE_TYPE: "gpu"}


def provider(folder: Path, *, least: int = 0, group: list[str] | None = None) -> Provider:
    group = group or GROUP
    settings: dict[str, Any] = {
        "folder": str(folder / "wishes"),
        "head": ["ray-head", "_head"],
        "nodes": {"ray-worker-0": "_worker", **dict.fromkeys(group, "gpu")},
        "group": group,
        "least": least,
    }
    return Provider(settings, "trainyard")


def wish(node_provider: Provider, count: int) -> None:
    node_provider.create_node_with_resources_and_labels({}, GPU, count, {}, {})


def wanted(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "wishes" / WANTED).read_text())
    return found


def there(folder: Path, *names: str) -> None:
    (folder / "wishes" / THERE).write_text(json.dumps(names))


def test_a_name_that_ray_still_knows_is_no_new_nodes(tmp_path: Path) -> None:
    made = provider(tmp_path)
    wish(made, 1)
    assert made.non_terminated_nodes(GPU) == ["ray-worker-1"]
    made.terminate_node("ray-worker-1")
    wish(made, 1)  # before Ray has looked again
    assert wanted(tmp_path) == ["ray-worker-2"]
    made.non_terminated_nodes({})
    wish(made, 1)
    assert wanted(tmp_path) == ["ray-worker-1", "ray-worker-2"]


def test_a_wish_is_written_down_and_counts_at_once(tmp_path: Path) -> None:
    made = provider(tmp_path)
    assert wanted(tmp_path) == []
    wish(made, 2)
    assert wanted(tmp_path) == ["ray-worker-1", "ray-worker-2"]
    # Otherwise Ray would wish for them again while they boot.
    assert sorted(made.non_terminated_nodes(GPU)) == ["ray-worker-1", "ray-worker-2"]
    assert made.is_running("ray-worker-1")
    assert made.is_terminated("ray-worker-3")
    made.terminate_node("ray-worker-1")
    assert wanted(tmp_path) == ["ray-worker-2"]


def test_what_is_always_there_is_neither_wished_for_nor_ended(tmp_path: Path) -> None:
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


def test_a_machine_that_is_being_ended_is_not_wished_for_again(tmp_path: Path) -> None:
    made = provider(tmp_path)
    wish(made, 1)
    there(tmp_path, "ray-worker-1")
    made.terminate_node("ray-worker-1")
    wish(made, 1)
    assert wanted(tmp_path) == ["ray-worker-2"]
    there(tmp_path, "ray-worker-2")
    wish(made, 1)
    assert wanted(tmp_path) == ["ray-worker-1", "ray-worker-2"]


def test_never_more_than_there_may_be(tmp_path: Path) -> None:
    made = provider(tmp_path)
    with pytest.raises(NodeLaunchException):
        wish(made, 9)
    assert wanted(tmp_path) == GROUP


def test_the_next_head_wishes_what_the_last_one_did(tmp_path: Path) -> None:
    wish(provider(tmp_path), 2)
    assert provider(tmp_path).is_running("ray-worker-2")
    assert wanted(tmp_path) == ["ray-worker-1", "ray-worker-2"]
    # Of a group that has become smaller, no more than that.
    provider(tmp_path, group=GROUP[:1])
    assert wanted(tmp_path) == ["ray-worker-1"]


def test_without_a_wish_what_is_there_stays_and_the_least_is_wished(tmp_path: Path) -> None:
    provider(tmp_path, least=1)
    assert wanted(tmp_path) == ["ray-worker-1"]
    (tmp_path / "wishes" / WANTED).write_text("[")
    there(tmp_path, "ray-worker-3")
    provider(tmp_path, least=1)
    assert wanted(tmp_path) == ["ray-worker-3"]


def test_two_threads_wish_for_two_machines(tmp_path: Path) -> None:
    made = provider(tmp_path)
    threads = [threading.Thread(target=wish, args=(made, 1)) for _ in GROUP]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wanted(tmp_path) == GROUP


def test_a_look_at_fifty_machines_takes_a_small_part_of_a_second(tmp_path: Path) -> None:
    made = provider(tmp_path, group=[f"ray-worker-{number}" for number in range(1, 51)])
    wish(made, 50)
    begun = time.process_time()
    for name in made.non_terminated_nodes({}):  # what Ray asks once a second
        made.node_tags(name)
        made.is_running(name)
    assert time.process_time() - begun < 0.1


def test_the_command_has_the_names_of_the_files() -> None:
    assert (scale.WANTED, scale.THERE) == (wish_provider.WANTED, wish_provider.THERE)
