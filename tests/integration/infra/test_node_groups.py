"""A group of workers on a running cluster: a job asks for it by its label and its resource."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.job_submission import JobSubmissionClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

JOB = """
import ray
@ray.remote(num_cpus=0, resources={"TPU": 4}, label_selector={"group": "tpu"})
def where():
    return ray.get_runtime_context().get_node_id()
ray.init()
alive = [node for node in ray.nodes() if node["Alive"]]  # a drill may have ended others
names = {node["NodeID"]: node["Labels"].get("group", "") for node in alive}
print("groups", sorted(names.values()), "ran on", names[ray.get(where.remote())])
"""


@pytest.fixture(scope="module")
def stack(stack_with_minio: Any) -> Any:
    return stack_with_minio


def test_a_task_runs_on_the_group_that_it_asks_for(
    stack: Any, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    outputs = stack.outputs()
    assert [(node["group"], node["resources"]) for node in outputs["nodes"]] == [
        ("", {}),
        ("tpu", {"TPU": 4}),
    ]
    headers = {"Authorization": f"Bearer {outputs['rayToken']}"}
    jobs = JobSubmissionClient(outputs["dashboardUrl"], headers=headers)
    (tmp_path / "job.py").write_text(JOB)
    job = jobs.submit_job(entrypoint="python job.py", runtime_env={"working_dir": str(tmp_path)})
    wait_for(lambda: jobs.get_job_status(job).is_terminal(), 120)
    assert "groups ['', 'tpu'] ran on tpu" in jobs.get_job_logs(job)
