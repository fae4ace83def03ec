"""The configuration of Ray's autoscaler for a stack's nodes."""

import json
from dataclasses import replace

from ray.autoscaler._private import constants
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

from cluster import autoscaling
from cluster.autoscaling import RayNodeProvider
from cluster.ray_node import Growth, NodeResources

NODE = NodeResources(cpus=2, gpus=0, memory_mib=1024, object_store_mib=128)
CPU = replace(NODE, group="cpu", growth=Growth(least=1, idle_seconds=30))
TPU = replace(NODE, group="tpu", resources={"TPU": 4}, growth=Growth(least=0, idle_seconds=60))
WORKERS = {"ray-worker-0": CPU, "ray-worker-1": CPU, "ray-worker-2": TPU, "ray-worker-3": NODE}
PROVIDER = RayNodeProvider(text="", settings={"supervisor": "/s"})


def test_ray_takes_the_configuration():
    head = replace(NODE, cpus=0)
    found = json.loads(autoscaling.config(head, WORKERS, PROVIDER))
    validate_config(prepare_config(found))
    types = AutoscalingConfig(found).get_node_type_configs()
    assert {
        name: (kind.min_worker_nodes, kind.max_worker_nodes, kind.idle_timeout_s)
        for name, kind in types.items()
        if name != found["head_node_type"]  # Ray counts the head as one that may be
    } == {
        "cpu": (1, 2, 30),
        "tpu": (0, 1, 60),
        # Permanent nodes count as well, and are never ended.
        "_worker": (1, 1, None),
    }
    assert types["tpu"].resources["TPU"] == 4
    assert types["cpu"].labels == {"group": "cpu"}
    assert found["provider"]["nodes"]["ray-worker-3"] == "_worker"
    assert found["provider"]["supervisor"] == "/s"


def test_a_stack_whose_groups_have_one_size_has_no_autoscaler():
    assert not autoscaling.grows([NODE, replace(NODE, group="cpu")])
    assert autoscaling.grows([NODE, CPU])


def test_an_unneeded_node_is_not_requested_for_an_hour():
    name = "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S"
    assert hasattr(constants, name)  # Ray reads it
    assert autoscaling.head_environment()[name] == "60"


def test_nodes_on_demand_are_missed_by_nobody():
    assert autoscaling.on_demand([NODE]) == 0
    assert autoscaling.on_demand([*WORKERS.values()]) == 2  # one CPU node is always there
