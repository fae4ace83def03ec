"""The whole program under mocks."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.machines import accelerators, docker_engine, local
from node import ray_command
from tests.outputs import names_of_outputs
from tests.unit.infra.conftest import devices
from trainyard.client import outputs as contract

ROOT = Path(__file__).parents[3]
RESERVED = {"start": "2026-01-01T13:00Z", "end": "2126-01-01T15:55Z"}


@pytest.fixture
def programs(go, bare, put_program) -> None:
    """Prometheus, and Go, which builds the object store."""
    put_program(bare, "prometheus", "exit 0")


@pytest.mark.usefixtures("programs")
def test_exports_are_the_contract(run, recorded):
    exported = run(objectStore="versitygw")
    assert set(exported) == names_of_outputs()
    assert exported["dashboardUrl"] == "http://127.0.0.1:8265"
    assert exported["storageUrl"] == "s3://ray"
    assert exported["rayToken"] == "value of ray-token"
    assert exported["serveToken"] == "value of serve-token"
    assert exported["accessKey"] == "value of object-store-training-key"
    assert exported["secretKey"] == "value of object-store-training"
    assert exported["pythonVersion"].count(".") == 1
    programs = recorded.of_type("process:Program")
    assert sorted(args.inputs["name"] for args in programs.values()) == [
        "prometheus",
        "ray-head",
        "ray-worker-0",
        "ray-worker-1",
        "versitygw",
    ]


@pytest.mark.usefixtures("bare")
def test_what_was_rotated_has_a_generation_and_nothing_else(run, recorded):  # F43
    for rotated in ({"ray-token": 2, "object-store-root": 1}, {}):
        run(rotated=rotated, tracking="mlflow")
        drawn = recorded.of_type("cluster:Secret")
        counted = {name: each.inputs.get("generation") for name, each in drawn.items()}
        assert counted == {name: rotated.get(name.removesuffix("-key")) for name in drawn}


@pytest.mark.usefixtures("bare")
def test_tracking_is_one_more_service_and_off_by_default(run, recorded):  # A45
    exported = run()
    assert (exported["trackingUrl"], exported["trackingPassword"]) == ("", "")
    before = {(args.typ, args.name): args.inputs for args in recorded.created}
    assert "MLFLOW" not in str(before)
    exported = run(tracking="mlflow")
    after = {(args.typ, args.name): args.inputs for args in recorded.created}
    assert [name for _, name in after.keys() - before.keys() if name.startswith("local-")] == [
        "local-mlflow"
    ]
    (mlflow,) = [args for (_, name), args in after.items() if name == "local-mlflow"]
    assert mlflow["command"][0].endswith("/bin/mlflow")
    assert "--host=127.0.0.1" in mlflow["command"]
    assert exported["trackingUrl"] == "http://127.0.0.1:5000"
    assert exported["trackingPassword"] == "value of tracking-admin"


def test_alerts_that_nothing_can_send_are_told(run, bare, put_program, warnings):
    run(alertWebhookUrl="https://chat.example/canary")
    in_the_clear, absent = warnings
    assert "the machine has no alertmanager or prometheus-alertmanager: alert" in absent
    assert "Run `make monitoring`, then run `up` again" in absent
    assert "canary" not in in_the_clear + absent
    put_program(bare, "prometheus-alertmanager", "exit 0")
    warnings.clear()
    exported = run(alertWebhookUrl="https://chat.example/canary")
    assert warnings == [in_the_clear]
    assert exported["alertmanagerUrl"] == "http://127.0.0.1:9093"


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("given", [False, True])
def test_processes_wait_for_their_data_set(run, recorded, requests, tmp_path, given):  # D7
    folder, mine = str(tmp_path / "d" / "food11"), {"name": "mine", "path": str(tmp_path)}
    source: dict[str, Any] = {"generate": True}
    if given:
        folder, source["volume"] = str(tmp_path), "mine"
    run(dataset=source, dataDir=str(tmp_path / "d"), volumes=[mine])
    (dataset,) = recorded.of_type("process:Once").values()
    assert dataset.inputs["folders"] == [folder]
    assert dataset.inputs["command"][1:] == ["--folder", folder, "--generate"]
    (needed,) = [urn for r in requests for urn in r.dependencies if urn.endswith("local-dataset")][
        :1
    ]
    for args in recorded.of_type("process:Program").values():
        (request,) = [r for r in requests if r.name == args.name]
        is_node = args.inputs["name"].startswith("ray-")
        assert (needed in request.dependencies) == is_node, args.name
        if is_node:
            assert args.inputs["environment"]["FOOD11_DATA_DIR"] == f"{folder}/Food-11"
            assert folder not in args.inputs["folders"]


@pytest.mark.usefixtures("bare")
def test_processes_read_volumes_where_they_are(run, recorded, tmp_path):
    exported = run(volumes=[{"name": "mine", "path": str(tmp_path), "readOnly": False}])
    assert exported["volumes"] == f"mine at {tmp_path}"
    for args in recorded.of_type("process:Program").values():
        assert str(tmp_path) not in args.inputs["folders"]  # `down` would remove it


@pytest.mark.usefixtures("engine")
def test_containers_of_users_mount_volumes(run, recorded, tmp_path):
    mine = {"name": "mine", "path": str(tmp_path), "mount": "/data/mine"}
    nas = {"name": "nas", "nfs": "nas:/export", "mount": "/data/nas", "readOnly": False}
    exported = run(runtime="auto", volumes=[mine, nas])
    assert exported["volumes"] == "mine at /data/mine, nas at /data/nas"
    made = recorded.of_type("docker:index/volume:Volume").values()
    options = {each.inputs["name"]: each.inputs.get("driverOpts") for each in made}
    bind = {"type": "none", "o": "bind", "device": str(tmp_path)}
    nfs = {"type": "nfs", "o": "addr=nas", "device": ":/export"}
    for name, container in _containers(recorded).items():
        found = {
            each["containerPath"]: (options[each["volumeName"]], each["readOnly"])
            for each in container["volumes"]
            if each["containerPath"].startswith("/data")
        }
        is_of_users = name.startswith("ray-") or name == "jupyter"
        assert found == (
            {"/data/mine": (bind, True), "/data/nas": (nfs, False)} if is_of_users else {}
        )
    names = options.keys()
    run(
        runtime="docker", volumes=[mine | {"path": "/srv"}]
    )  # another volume: options cannot change
    changed = {
        each.inputs["name"] for each in recorded.of_type("docker:index/volume:Volume").values()
    }
    assert len(changed - names) == 1


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("read_only", [True, False])
def test_containers_have_their_data_set_in_a_volume_of_the_user(
    run, recorded, requests, read_only
):  # D7
    nas = {"name": "nas", "nfs": "nas:/export", "mount": "/data/nas", "readOnly": read_only}
    run(runtime="docker", volumes=[nas], dataset={"generate": True, "volume": "nas"})
    containers = _containers(recorded)
    mounts = {
        name: [(each["volumeName"], each["readOnly"]) for each in container["volumes"]]
        for name, container in containers.items()
    }
    ((volume, of_the_filler),) = mounts["dataset"]
    assert not of_the_filler
    made = recorded.of_type("docker:index/volume:Volume").values()
    assert not any("food11" in each.inputs["name"] for each in made)  # none of its own
    assert containers["dataset"]["command"] == ["--folder", "/data/nas", "--generate"]
    for node in ("ray-head", "ray-worker-0"):
        assert mounts[node].count((volume, read_only)) == 1
        assert "FOOD11_DATA_DIR=/data/nas/Food-11" in containers[node]["envs"]
        (request,) = [each for each in requests if each.name == f"local-{node}"]
        assert any(urn.endswith("local-dataset-ready") for urn in request.dependencies)
    (node,) = recorded.of_type("docker:Node").values()
    assert node.inputs["volumes"] == []  # `down` promises to keep the stack's own only


@pytest.mark.usefixtures("bare")
def test_an_archive_that_is_not_there_ends_the_program(run, tmp_path):  # F2
    missing = tmp_path / "none.zip"
    with pytest.raises(pulumi.RunError, match=f"dataset.archive = '{missing}': no such file"):
        run(dataset={"archive": str(missing)})


@pytest.mark.usefixtures("bare")
def test_a_bare_machine_gets_ray_and_a_folder(run, recorded):
    exported = run(workers=1)
    assert exported["storageUrl"].startswith("file:///")
    assert exported["prometheusUrl"] == ""
    assert exported["objectStoreEndpoint"] == ""
    assert len(recorded.of_type("process:Program")) == 2


@pytest.mark.usefixtures("programs")
def test_no_secret_is_an_ordinary_input(run, recorded):  # F35
    run()
    secret = ("secrets", "rootUser", "rootPassword", "accessKey", "secretKey", "value")
    for args in recorded.created:
        shown = {key: value for key, value in args.inputs.items() if key not in secret}
        assert "value of " not in str(shown), args.name


@pytest.mark.usefixtures("programs")
def test_every_port_of_the_stack_is_checked_before_anything_starts(run, recorded):
    run()
    (supervisor,) = recorded.of_type("process:Supervisor").values()
    (data,) = recorded.of_type("process:Data").values()
    assert data.inputs["ports"] == supervisor.inputs["ports"]  # claimed  # F64
    checked = {int(n) for numbers in supervisor.inputs["ports"].values() for n in numbers}
    opened = {
        int(port["number"])
        for program in recorded.of_type("process:Program").values()
        for port in program.inputs["ports"]
    }
    assert checked == opened


@pytest.mark.usefixtures("programs")
def test_everything_that_is_put_somewhere_bears_the_mark_of_the_stack(run, recorded):  # F46
    run(objectStore="versitygw", dataset={"generate": True})
    (mark,) = recorded.of_type("process:Mark").values()
    assert (mark.inputs["project"], mark.inputs["stack"]) == ("trainyard", "test")
    placed = [args for args in recorded.created if "/process:" in args.typ and args is not mark]
    assert len(placed) == 8, "data, supervisord, data set, store, Prometheus, head, two workers"
    assert all(args.inputs["mark"]["stack"] == "test" for args in placed)
    (supervisor,) = recorded.of_type("process:Supervisor").values()
    (data,) = recorded.of_type("process:Data").values()
    assert supervisor.inputs["data"] == data.inputs["folder"]


@pytest.mark.usefixtures("bare")
def test_bad_settings_end_the_program_before_any_resource(run, recorded):  # F2
    with pytest.raises(pulumi.RunError, match="2 faults"):
        run(workers=-1, drainSeconds=-1)
    assert recorded.created == []


def _containers(recorded: Any) -> dict[str, dict[str, Any]]:
    found = recorded.of_type("docker:index/container:Container")
    return {args.inputs["name"]: args.inputs for args in found.values()}


@pytest.mark.usefixtures("engine")
def test_containers_are_what_a_machine_with_an_engine_gets(run, recorded):  # D11
    exported = run(runtime="auto", notebook=True)
    assert set(exported) == names_of_outputs()
    assert exported["notebookUrl"] == "http://127.0.0.1:8888/lab?token=value of notebook-token"
    assert exported["grafanaUrl"] == "http://127.0.0.1:3000"
    assert exported["containerPrefix"] == ""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert exported["pythonVersion"] == here  # the clients'
    assert set(_containers(recorded)) == {
        "grafana",
        "jupyter",
        "prometheus",
        "ray-head",
        "ray-worker-0",
        "ray-worker-1",
        "versitygw",
    }
    (node,) = recorded.of_type("docker:Node").values()
    assert sorted(node.inputs["names"]) == sorted(_containers(recorded))


@pytest.mark.usefixtures("engine")
def test_the_lab_has_the_courses_ports_and_a_notebook_that_keeps_its_files(run, recorded):
    run(runtime="docker", objectStore="minio", owner="ada", notebook=True)
    containers = _containers(recorded)
    published = {int(p["external"]) for each in containers.values() for p in each.get("ports", [])}
    assert published == {3000, 8000, 8265, 8888, 9000, 9001, 9090}  # D24
    notebook = containers["ada-jupyter"]  # D20
    assert [(int(p["internal"]), int(p["external"])) for p in notebook["ports"]] == [(8888, 8888)]
    (kept,) = [each["volumeName"] for each in notebook["volumes"]]
    assert [each["containerPath"] for each in notebook["volumes"]] == [
        "/var/lib/trainyard/workspace"
    ]
    volumes = recorded.of_type("docker:index/volume:Volume")
    assert kept in {each.inputs["name"] for each in volumes.values()}
    assert "RAY_ADDRESS=http://ray-head:8265" in notebook["envs"]


@pytest.mark.usefixtures("engine")
def test_a_choice_stays_when_the_engine_does_not_answer(  # the data is in its volumes
    run, recorded, monkeypatch
):
    run(runtime="auto")
    (choice,) = recorded.of_type("docker:Choice").values()
    path = Path(choice.inputs["path"])
    path.parent.mkdir(parents=True)
    path.write_text(choice.inputs["runtime"])
    monkeypatch.setattr(docker_engine, "answers", lambda: False)
    run(runtime="auto")
    assert len(_containers(recorded)) == 6


# Whatever else a container can be given, by pulumi-docker's names: each of these would open the
# machine, or another container, to it.
NEVER = {
    *("privileged", "pidMode", "ipcMode", "usernsMode", "cgroupnsMode", "networkMode", "runtime"),
    *("deviceCgroupRules", "deviceRequests", "mounts", "sysctls", "cgroupParent", "hosts"),
    *("publishAllPorts", "user", "storageOpts"),
}


@pytest.mark.usefixtures("engine")
def test_no_container_is_given_more_than_it_needs(run, recorded, tmp_path):  # F40
    archive = tmp_path / "food11.zip"
    archive.touch()
    outside = {"allowedCidrs": ["10.1.0.0/16"], "publishAddress": "10.1.2.3"}
    dataset = {"archive": str(archive)}
    asked = {"tracking": "mlflow", "page": True, "notebook": True, "dataset": dataset}
    run(runtime="docker", **asked, **outside)
    containers = _containers(recorded)
    assert {"gateway", "mlflow", "dataset", "jupyter", "page", "grafana"} <= set(containers)
    for name, inputs in containers.items():
        assert not NEVER & inputs.keys(), name
        assert inputs["capabilities"] == {"drops": ["ALL"]}, name
        assert inputs["securityOpts"] == ["no-new-privileges:true"], name
        assert "docker.sock" not in json.dumps(inputs), name
        folders = [each for each in inputs["volumes"] if "hostPath" in each]
        assert [(each["hostPath"], each["readOnly"]) for each in folders] == (
            [(str(archive), True)] if name == "dataset" else []
        ), name
        assert not inputs.get("devices"), name
        assert not inputs.get("groupAdds"), name
        assert not any("value of " in env for env in inputs["envs"]), name  # F35
        assert "value of " not in json.dumps(inputs["command"]), name
        addresses = {port["ip"] for port in inputs.get("ports", [])}
        assert addresses <= ({"10.1.2.3"} if name == "gateway" else {"127.0.0.1"}), name  # F33


def _bounds(recorded: Any) -> dict[str, tuple[Any, Any, int]]:
    """Memory, memory with swap, and processes, by container."""
    ready = recorded.of_type("docker:Ready").values()
    processes = {args.inputs["alias"]: int(args.inputs["processes"]) for args in ready}
    return {
        name: (inputs.get("memory"), inputs.get("memorySwap"), processes[name])
        for name, inputs in _containers(recorded).items()
    }


@pytest.mark.usefixtures("engine")
def test_every_container_has_bounds(run, recorded):
    worker = {"cpus": 4, "memoryMib": 10000, "objectStoreMib": 1000}
    limits = {"jupyter": {"memoryMib": 100}, "ray-worker": {"processes": 500}}
    outside = {"allowedCidrs": ["10.1.0.0/16"], "publishAddress": "10.1.2.3"}
    asked = {"tracking": "mlflow", "worker": worker, "notebook": True}
    run(runtime="docker", containerLimits=limits, **asked, **outside)
    found = _bounds(recorded)
    assert all(memory and memory == swap and count for memory, swap, count in found.values())
    assert found["ray-worker-1"] == (10000 + 1000 + 2048 + 4 * 128, 13560, 500)
    assert found["ray-head"][0] == 1024 + 128 + 2048 + 8192
    assert (found["jupyter"][0], found["jupyter"][2]) == (100, 4096)
    assert found["gateway"] == (512, 512, 256)


@pytest.mark.usefixtures("engine")
def test_containers_end_by_a_timer_of_this_machine_and_name_their_owner(run, recorded):  # D3 D4
    named = {"owner": "net id", "containerPrefix": "lab-"}
    exported = run(runtime="docker", reservation=RESERVED, notebook=True, **named)
    assert (exported["owner"], exported["containerPrefix"]) == ("net-id", "lab-")
    times = (exported["reservedFrom"], exported["expiresAt"])
    assert times == ("2026-01-01T13:00:00+00:00", "2126-01-01T15:55:00+00:00")
    (timer,) = recorded.of_type("process:Supervisor").values()
    told = timer.inputs["reservation"]
    assert (told["end"], told["network"]) == (exported["expiresAt"], "lab-trainyard-test")
    assert told["leave"] == {
        "container": "lab-ray-head",
        "script": "/etc/trainyard/ray_leave.py",
        "arguments": ["ray-head:6379", "*"],
    }
    where = {"container": "lab-jupyter", "folder": "/var/lib/trainyard/workspace"}
    assert told["notebook"] == where
    for name, container in _containers(recorded).items():
        labels = {each["label"]: each["value"] for each in container["labels"]}
        assert labels["trainyard.owner"] == "net-id", name
        assert "docker.sock" not in str(container), name
        # An extension restarts Prometheus, whose alert knows the end, and nothing else.
        assert ("4922954700" in str(container)) == (name == "lab-prometheus"), name
    assert run(runtime="docker")["owner"] == local.owner()
    assert not recorded.of_type("process:Supervisor")
    assert run(runtime="docker", owner="net id")["containerPrefix"] == "net-id-"
    (node,) = recorded.of_type("docker:Node").values()
    assert node.inputs["identity"] == "net-id-trainyard-test"
    assert {"net-id-ray-head", "net-id-versitygw"} <= {*node.inputs["names"]}


@pytest.mark.usefixtures("engine")
def test_nobody_is_drained_before_the_names_are_checked(run, recorded, requests):  # D4
    run(runtime="docker")
    assert recorded.of_type("docker:Leave")
    leaves = [each for each in requests if each.type.endswith("docker:Leave")]
    for each in leaves:
        after = {urn.rpartition("::")[2] for urn in each.dependencies}
        container = each.name.removesuffix("-removed")
        assert (container if container != each.name else "local-node") in after, each.name


@pytest.mark.usefixtures("bare")
def test_the_timer_of_processes_is_not_in_what_restarts_ray(run, recorded):  # D3
    run()
    before = {name: args.inputs for name, args in recorded.of_type("process:Program").items()}
    run(reservation=RESERVED)
    assert before == {n: args.inputs for n, args in recorded.of_type("process:Program").items()}
    (daemon,) = recorded.of_type("process:Supervisor").values()
    assert daemon.inputs["reservation"] == {
        "end": "2126-01-01T15:55:00+00:00",
        "drainSeconds": 60,
        "leave": {
            "service": "ray-head",
            "file": "ray_leave.py",
            "arguments": ["127.0.0.2:6379", "*"],
        },
    }


@pytest.mark.usefixtures("bare")
def test_processes_with_a_reservation_end_when_idle_too(run, recorded):  # B27
    command = {"beforeEnd": {"run": "true", "seconds": 300}}
    exported = run(reservation={**RESERVED, **command}, idleEnd={"minutes": 30})
    assert exported["idleEndUrl"] == "http://127.0.0.1:8768"
    (daemon,) = recorded.of_type("process:Supervisor").values()
    told = daemon.inputs["reservation"]["value"]["idle"]  # a secret
    folder = daemon.inputs["folder"]
    assert told == {
        "url": "http://127.0.0.1:8768/verdict",
        "token": "value of idle-end-token",
        "last": False,
        "file": f"{folder}/idle-end/state/state.json",
    }
    programs = {
        args.inputs["name"]: args.inputs for args in recorded.of_type("process:Program").values()
    }
    watch = json.loads(programs["idle-end"]["secrets"]["value"]["idle.json"])
    assert (watch["source"], watch["file"]) == (None, told["file"])  # results outlive the end
    assert watch["commandSeconds"] == 300


@pytest.mark.usefixtures("engine")
def test_containers_with_a_reservation_end_when_idle_too(run, recorded):  # B27
    named = {"containerPrefix": "lab-", "notebook": True}
    exported = run(runtime="docker", reservation=RESERVED, idleEnd={"minutes": 30}, **named)
    assert exported["idleEndUrl"] == "http://127.0.0.1:8768"
    assert exported["idleEndToken"] == "value of idle-end-token"
    (timer,) = recorded.of_type("process:Supervisor").values()
    told = timer.inputs["reservation"]["idle"]
    assert told == {"container": "lab-idle-end", "file": "/tmp/state/state.json"}
    watch = _containers(recorded)["lab-idle-end"]
    assert watch["entrypoints"] == ["python3", "/etc/trainyard/idle_watch.py"]
    files = {each["file"]: each["content"] for each in watch["uploads"]["value"]}
    assert {"/etc/trainyard/replicate.py", "/etc/trainyard/trainyard/store/objects.py"} <= {*files}
    known = json.loads(files["/etc/trainyard/idle.json"])
    assert (known["file"], known["source"]) == (told["file"], None)
    assert known["dashboard"] == "http://ray-head:8265"
    notebook = {"url": "http://jupyter:8888", "token": "value of notebook-token"}
    assert known["notebook"] == notebook
    prometheus = _containers(recorded)["lab-prometheus"]
    assert "idle-end:8768" in str(prometheus["uploads"])


@pytest.mark.usefixtures("bare")
def test_when_a_job_that_cannot_start_fails_is_a_setting(run, recorded):  # D36
    for given, variable in (({}, None), (60, "60"), (0, "inf")):
        exported = run(**({"jobStartTimeoutSeconds": given} if given != {} else {}))
        assert exported["jobStartTimeoutSeconds"] == (900 if given == {} else given)
        programs = {a.inputs["name"]: a.inputs for a in recorded.of_type("Program").values()}
        for name, inputs in programs.items():
            found = inputs["environment"].get("RAY_JOB_START_TIMEOUT_SECONDS")
            assert found == (variable if name == "ray-head" else None), name


@pytest.mark.usefixtures("engine")
def test_a_kernel_that_keeps_no_bounds_is_told_of(run, recorded, monkeypatch, warnings):
    info = docker_engine.info()
    monkeypatch.setattr(docker_engine, "info", lambda *_: info | {"SwapLimit": False})
    run(runtime="docker")
    assert _bounds(recorded)["versitygw"] == (4096, -1, 2048)
    assert warnings == []
    nothing = dict.fromkeys(("MemoryLimit", "SwapLimit", "PidsLimit"), False)
    monkeypatch.setattr(docker_engine, "info", lambda *_: info | nothing)
    run(runtime="docker")
    assert _bounds(recorded)["versitygw"] == (None, None, 0)
    assert "bounds no memory or no processes" in warnings[0]


@pytest.mark.usefixtures("engine")
def test_a_container_tracks_what_runs(run, recorded):  # A45
    source = {"generate": True, "volume": "v1"}
    exported = run(runtime="docker", tracking="mlflow", dataset=source)
    containers = _containers(recorded)
    assert exported["trackingUrl"] == "http://127.0.0.1:5000"
    published = {(port["ip"], port["external"]) for port in containers["mlflow"]["ports"]}
    assert published == {("127.0.0.1", 5000)}
    assert "--artifacts-destination=s3://ray/mlflow" in containers["mlflow"]["command"]
    assert "MLFLOW_TRACKING_URI=http://mlflow:5000" in containers["ray-worker-1"]["envs"]
    assert containers["dataset"]["command"] == ["--folder", "/mnt", "--generate"]
    assert "entrypoints" not in containers["dataset"]
    python, script = containers["ray-head"]["entrypoints"]  # as its image's `ray`, with less loaded
    assert (python, Path(script).name) == ("python3", ray_command.FILE)
    head = {(port["ip"], port["external"]) for port in containers["ray-head"]["ports"]}
    assert head == {("127.0.0.1", 8265), ("127.0.0.1", 8000)}  # A46
    assert "TRAINYARD_SERVE_HOST=0.0.0.0" in containers["ray-worker-0"]["envs"]
    (node,) = recorded.of_type("docker:Node").values()
    assert sorted(node.inputs["names"]) == sorted(containers)


@pytest.mark.usefixtures("engine")
def test_the_gateway_leads_to_what_is_tracked_and_served(run, recorded):  # F33
    cidrs = {"allowedCidrs": ["10.1.0.0/16"], "publishAddress": "10.1.2.3"}
    exported = run(runtime="docker", tracking="mlflow", **cidrs)
    assert exported["trackingUrl"] == "http://10.1.2.3:5000"
    assert exported["serveUrl"] == "http://10.1.2.3:8000"
    containers = _containers(recorded)
    assert {5000, 8000} <= {int(port["external"]) for port in containers["gateway"]["ports"]}
    hosts = "127.0.0.1:*,localhost:*,mlflow:5000,10.1.2.3:5000"
    assert f"--allowed-hosts={hosts}" in containers["mlflow"]["command"]


@pytest.mark.usefixtures("engine")
def test_every_published_port_is_checked_before_anything_starts(run, recorded):
    run(runtime="docker", tracking="mlflow")
    (node,) = recorded.of_type("docker:Node").values()
    checked = {int(n) for numbers in node.inputs["ports"].values() for n in numbers}
    published = {
        int(port["external"])
        for inputs in _containers(recorded).values()
        for port in inputs.get("ports", [])
    }
    assert checked == published


@pytest.mark.usefixtures("engine")
def test_train_in_the_notebook_has_all_outputs_that_it_reads(run, recorded):
    run(runtime="docker", notebook=True)
    uploads = _containers(recorded)["jupyter"]["uploads"]["value"]  # a secret
    (text,) = [each["content"] for each in uploads if each["file"].endswith("/outputs.json")]
    found = contract.parse(text, None, "the notebook's file")
    assert (found.dashboard_url, len(found.nodes)) == ("http://ray-head:8265", 3)


@pytest.mark.usefixtures("bare")
def test_the_page_is_a_process_of_this_machine_too(run, recorded):
    exported = run(page=True, objectStore="directory")
    assert (exported["pageUrl"], exported["notebookUrl"]) == ("http://127.0.0.1:8269", "")
    programs = {args.inputs["name"]: args for args in recorded.of_type("process:Program").values()}
    assert "jupyter" not in programs  # though both have the same program in containers
    page = programs["page"].inputs
    program, *words = page["command"]
    assert (Path(program).name, words[:2]) == ("train", ["page", "--host=127.0.0.1"])
    assert Path(program).is_file()
    files = page["secrets"]["value"]
    assert files["page-password"] == "value of page-password"
    assert page["environment"]["TRAINYARD_OUTPUTS"].endswith("/page/files/outputs.json")
    found = contract.parse(files["outputs.json"], None, "the page's file")
    assert found.dashboard_url == "http://127.0.0.1:8265"


@pytest.mark.usefixtures("engine")
def test_the_queue_is_a_container_and_the_address_of_jobs(run, recorded):
    exported = run(runtime="docker", queue=True, notebook=True)
    assert exported["dashboardUrl"] == "http://127.0.0.1:8270"
    assert len(exported["nodes"]) == 3
    containers = _containers(recorded)
    queue = containers["queue"]
    script = "/etc/trainyard/trainyard_queue.py"
    assert queue["entrypoints"] == ["python3", script]
    files = {each["file"] for each in queue["uploads"]["value"]}
    assert {script, "/etc/trainyard/trainyard/queue/__main__.py"} <= files
    ((data, where),) = [(v["volumeName"], v["containerPath"]) for v in queue["volumes"]]
    assert (data, where) == ("trainyard-test-queue-data", "/var/lib/trainyard/data")
    assert f"{where} " in (ROOT / "docker/ray/Dockerfile").read_text().replace("\n", " ")
    assert "RAY_ADDRESS=http://queue:8270" in containers["jupyter"]["envs"]


@pytest.mark.usefixtures("bare")
def test_the_notebook_is_a_process_of_this_machine_once_it_is_installed(  # D20
    run, recorded, monkeypatch, tmp_path, warnings
):
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    monkeypatch.setattr(local.sys, "prefix", str(environment))
    for there in (False, True):
        recorded.created.clear()
        if there:
            (environment / "bin/jupyter-lab").touch()
        exported = run(notebook=True, page=True, objectStore="directory")
        started = recorded.of_type("process:Program").values()
        programs = {args.inputs["name"]: args.inputs for args in started}
        assert ("jupyter" in programs) == there
        told = "the machine has no jupyter-lab: jupyter does not run. Run `make notebook`"
        assert (told in str(warnings)) != there
        warnings.clear()
        assert programs["page"]["command"][0] == str(environment / "bin/train")
    assert exported["notebookUrl"] == "http://127.0.0.1:8888/lab?token=value of notebook-token"
    notebook = programs["jupyter"]
    program, *words = notebook["command"]
    assert program.endswith("/docker/jupyter/jupyter.sh")
    assert os.access(program, os.X_OK)
    assert words == ["lab", "--ip=127.0.0.1", "--port=8888"]
    assert "value of notebook-token" not in str(words)


@pytest.mark.usefixtures("engine")
def test_the_page_is_off_and_then_one_more_container_with_a_password(run, recorded):  # F35 F37
    exported = run(runtime="docker")
    assert (exported["pageUrl"], exported["pagePassword"]) == ("", "")
    assert "page" not in _containers(recorded)
    outside = {"allowedCidrs": ["10.1.0.0/16"], "publishAddress": "10.1.2.3"}
    exported = run(runtime="docker", page=True, **outside)
    assert exported["pageUrl"] == "http://10.1.2.3:8269"
    assert exported["pagePassword"] == "value of page-password"
    containers = _containers(recorded)
    files = {each["file"]: each["content"] for each in containers["page"]["uploads"]["value"]}
    assert files["/etc/trainyard/page-password"] == "value of page-password"
    found = contract.parse(files["/etc/trainyard/outputs.json"], None, "the page's file")
    assert found.dashboard_url == "http://ray-head:8265"
    # Inside the stack's network Prometheus asks for no password, so the page needs none.
    (monitor,) = found.services
    assert (monitor.url, monitor.password) == ("http://prometheus:9090", "")
    assert 8269 in {int(port["external"]) for port in containers["gateway"]["ports"]}
    gateway = containers["gateway"]["uploads"]["value"][0]["content"]
    route = gateway.partition("listen page-8269\n")[2].partition("listen ")[0]
    assert "http_auth" not in route  # the page asks itself, also on this machine's loopback


@pytest.mark.usefixtures("engine")
def test_images_have_the_python_that_is_asked_for(run, recorded):
    assert run(runtime="docker", imagePython="3.12")["pythonVersion"] == "3.12"
    images = recorded.of_type("docker:index/remoteImage:RemoteImage")
    (ray,) = [args.inputs for name, args in images.items() if name == "image-ray"]
    assert ray["build"]["buildArgs"] == {"BASE_IMAGE": "ubuntu:24.04", "IMAGE_PYTHON": "3.12"}


@pytest.mark.usefixtures("engine")
def test_each_worker_gets_one_nvidia_device_and_no_other(run, recorded, monkeypatch):  # D1 D18 D19
    monkeypatch.setattr(accelerators, "_run", lambda *_: "")
    monkeypatch.setattr(accelerators, "parse_nvidia", lambda *_: devices(2))
    exported = run(runtime="docker", accelerator="nvidia")
    containers = _containers(recorded)
    assert containers["ray-worker-0"]["gpus"] == "device=GPU-0"
    assert containers["ray-worker-1"]["gpus"] == "device=GPU-1"
    assert {name for name, inputs in containers.items() if inputs.get("gpus")} == {
        "ray-worker-0",
        "ray-worker-1",
    }
    assert [node["gpus"] for node in exported["nodes"]] == [0, 1, 1]


@pytest.mark.usefixtures("engine")
def test_each_worker_gets_one_amd_device_and_no_other(run, recorded, monkeypatch):  # D1 D16 D17
    monkeypatch.setattr(accelerators, "_topology", dict)
    monkeypatch.setattr(accelerators, "_nodes", list)
    monkeypatch.setattr(accelerators, "_rocm_smi", lambda: "")
    monkeypatch.setattr(accelerators, "parse_amd", lambda *_: devices(2, "amd"))
    groups = {"/dev/kfd": "44", "/dev/dri/renderD128": "105", "video": "44"}
    groups["/dev/dri/renderD129"] = "105"
    monkeypatch.setattr(accelerators, "_groups", lambda _: groups)
    run(runtime="docker", accelerator="amd")
    for index in range(2):
        inputs = _containers(recorded)[f"ray-worker-{index}"]
        assert [device["hostPath"] for device in inputs["devices"]] == [
            "/dev/kfd",
            f"/dev/dri/renderD{128 + index}",
        ]
        assert inputs["groupAdds"] == ["44", "105"]


@pytest.mark.usefixtures("engine")
def test_more_workers_than_devices_are_refused_before_anything_is_made(  # D2
    run, recorded, monkeypatch
):
    monkeypatch.setattr(accelerators, "_run", lambda *_: "")
    monkeypatch.setattr(accelerators, "parse_nvidia", lambda *_: devices(1))
    with pytest.raises(pulumi.RunError, match=r"2 workers with 1 GPU each need 2 devices.*A10"):
        run(runtime="docker", accelerator="nvidia")
    assert recorded.created == []


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"objectStoreEndpoint": ""}, "stack 'prod' has no object store: bring it up"),
        ({"ssh": {"host": "192.0.2.4"}}, "stack 'prod' is on other machines"),
        # As the CLI gives a secret of another passphrase.
        ({"secretKey": {}}, "the keys of stack 'prod' cannot be read: it has another passphrase"),
    ],
)
def test_the_store_can_be_another_stacks(run, recorded, monkeypatch, changes, fault):
    known = {"objectStoreEndpoint": "http://127.0.0.1:29000", "bucket": "ray", "ssh": {}}
    known |= {"accessKey": "canary-key", "secretKey": "canary-secret"} | changes

    class Prod(pulumi.ComponentResource):
        def __init__(self, name: str, path: str) -> None:
            assert path.endswith("/prod")
            super().__init__("test:prod", name)

        def get_output(self, name: str) -> pulumi.Output[Any]:
            return pulumi.Output.from_input(known.get(name))

    monkeypatch.setattr(pulumi, "StackReference", Prod)
    if fault:
        with pytest.raises(pulumi.RunError, match=f"storeFrom: {fault}.*; or remove storeFrom"):
            run(storeFrom="prod")
        return
    exported = run(storeFrom="prod")
    assert exported["storageUrl"] == "s3://ray"
    assert exported["objectStoreEndpoint"] == "http://127.0.0.1:29000"
    assert (exported["accessKey"], exported["secretKey"]) == ("canary-key", "canary-secret")
    programs = {args.inputs["name"]: args for args in recorded.of_type("process:Program").values()}
    assert set(programs) == {"ray-head", "ray-worker-0", "ray-worker-1"}  # and no store
    worker = programs["ray-worker-0"].inputs
    assert worker["environment"]["AWS_ENDPOINT_URL"] == "http://127.0.0.1:29000"
    assert "canary-secret" in str(worker["secrets"])
    assert "canary-secret" not in str({k: v for k, v in worker.items() if k != "secrets"})
