"""The queue as a service: what it is told, its modules, and the address that clients get."""

import json
import subprocess
import sys

import pulumi

from cluster.job_queue import DATABASE, RULES, SERVICE, Bounds, JobQueue, QueueRules, module_files
from tests.unit.cluster.conftest import PORTS, stack
from trainyard.access import outputs

NODES = [{"name": "head", "cpus": 1}]


def test_it_is_told_the_head_and_clients_get_its_address(runtime, deploy, monkeypatch):
    monkeypatch.setitem(PORTS, "queuePort", 8270)
    quotas = {"*": Bounds(gpus=2), "eva": Bounds(gpu_hours_week=1.5), "@lab": Bounds(gpus=4)}
    rules = QueueRules(half_life_days=3, quotas=quotas, groups={"lab": ("eva", "ole")})
    settings = {RULES: rules, DATABASE: ""}
    made = stack(runtime, None, settings)
    made.outputs[outputs.NODES] = NODES

    def program():
        JobQueue("queue", made)
        return [runtime.placed[SERVICE].secrets["queue.json"], made.outputs["dashboardUrl"]]

    told, address = deploy(program)
    service = runtime.placed[SERVICE]
    assert "canary" not in f"{service.arguments} {service.environment} {service.files}"
    known = json.loads(told)
    assert known["token"] == "canary"
    assert known["head"] == f"http://{runtime.address('ray-head', 8265)}"
    assert (known["halfLifeDays"], known["backfill"], known["nodes"]) == (3, True, NODES)
    assert known["lowUse"] == {"percent": 5, "minutes": 30, "stop_minutes": 0}
    own = {"": {"gpus": 2}, "eva": {"gpuHoursWeek": 1.5}}
    assert known["quotas"] == own | {"@lab": {"gpus": 4}}
    assert known["groups"] == {"lab": ["eva", "ole"]}
    assert address == f"http://{runtime.public(SERVICE, 8270)}"
    assert (known["address"], made.outputs["queue"]) == (runtime.address(SERVICE, 8270), "true")
    assert known["data"] == runtime.volume(SERVICE, service.volumes[0])
    assert service.volumes[0].keep


def test_the_price_of_machines_that_are_not_rented_is_said(runtime, deploy, monkeypatch):
    said = []
    monkeypatch.setitem(PORTS, "queuePort", 8270)
    monkeypatch.setattr(pulumi.log, "info", lambda text, _: said.append(text))
    made = stack(runtime, None, {RULES: QueueRules(hourly_cost=1.2), DATABASE: ""})
    made.outputs[outputs.NODES] = [{"hourlyCost": price} for price in (0, 0, 3.5)]
    deploy(lambda: [JobQueue("queue", made).urn])
    assert said == ["2 nodes that are not rented: 2.40 $/h (queueRules.hourlyCost)"]


def test_its_files_are_all_that_it_imports_of_the_checkout(tmp_path):
    for name, text in module_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    code = (
        "import sys, trainyard.queue.__main__, trainyard.queue.records as r\n"
        f"r.Records('sqlite:///{tmp_path}/queue.db')\n"
        "names = [m.__file__ for n, m in sys.modules.items() if n.startswith('trainyard')]\n"
        "print(*names, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [name for name in done.stdout.split() if not name.startswith(str(tmp_path))] == []
