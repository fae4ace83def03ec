"""A run's checkpoint as a service on a real Ray Serve: its answers, its users, and its end."""

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import torch
from PIL import Image
from sklearn.datasets import load_digits

from tests import browser
from tests.waiting import wait_for
from trainyard import models
from trainyard.data.transforms import to_tensor
from trainyard.jobs import alexnet
from trainyard.resume import checkpoint_files
from trainyard.store import objects
from trainyard.tracking.run_folder import CHECKPOINT_FILE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

# A fifth of AlexNet's weights; tests/unit shows that the full weights are served as well.
ARCHITECTURE = "resnet18"
IMAGE_SIZE = 64
CLASSES = ["bread", "egg", "rice", "soup", "meat", "fish", "fruit"]
SERVE_DEADLINE_S = 280
NAME = "served"
LATE = "no answer within 1 s: ask for less at a time"


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = models.build(ARCHITECTURE, len(CLASSES)).eval()
    with torch.no_grad():  # untrained, it would say nearly the same of all images
        model.fc.weight.mul_(10)
    return model


@pytest.fixture(scope="module")
def store(cluster, tmp_path_factory) -> Iterator[Callable[..., str]]:
    """Stores a model as the alexnet job does; returns the checkpoint's name."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.ray_env.items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)

        def put(number: int) -> str:
            folder = tmp_path_factory.mktemp("checkpoint")
            state = {"model": network(number).state_dict(), "history": [{"epoch": 0}] * number}
            torch.save(state, folder / CHECKPOINT_FILE)
            own = {"architecture": ARCHITECTURE, "classes": CLASSES, "image_side": IMAGE_SIZE}
            name = f"checkpoint_{number:06d}-abcd"
            checkpoint_files.store(
                objects.open_url(f"s3://ray/{NAME}"), name, folder, alexnet.DESCRIPTION | own
            )
            return name

        yield put


@pytest.fixture(scope="module")
def first(cluster, store) -> Iterator[str]:
    """Serves the run's first checkpoint; returns the command's output. Leaves nothing."""
    store(1)
    try:
        yield cluster.done("serve", NAME, timeout=SERVE_DEADLINE_S)
        assert serve_actors(cluster)
    finally:
        cluster.done("serve", NAME, "--stop", timeout=SERVE_DEADLINE_S)
    assert json.loads(cluster.train("services", "--json").stdout) == []
    wait_for("the end of Serve's actors", lambda: not serve_actors(cluster))  # A46
    address = urlsplit(cluster.outputs["serveUrl"])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=5)


@pytest.fixture(scope="module")
def url(first, cluster) -> str:
    """Address of the service."""
    return f"{cluster.outputs['serveUrl']}/{NAME}"


@pytest.fixture(scope="module")
def ask(url, cluster) -> Callable[..., requests.Response]:
    """Sends images as a form."""
    bearer = {"Authorization": f"Bearer {cluster.outputs['serveToken']}"}

    def send(*images: bytes, field: str = "images") -> requests.Response:
        files = [(field, (f"{i}.jpg", content)) for i, content in enumerate(images)]
        return requests.post(f"{url}/predict", files=files, headers=bearer, timeout=150)

    return send


def picture(seed: int, kind: str = "PNG", mode: str = "RGB") -> bytes:
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 4) if mode == "L" else (3, 4, len(mode))
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels, mode).resize((90, 70 + seed)).save(file, kind)
    return file.getvalue()


def on_white(image: Image.Image) -> Image.Image:
    page = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(page, image.convert("RGBA")).convert("RGB")


def own_answer(number: int, images: list[bytes]) -> torch.Tensor:
    transform = to_tensor(IMAGE_SIZE)  # of training
    batch = torch.stack([transform(on_white(Image.open(io.BytesIO(each)))) for each in images])
    with torch.inference_mode():
        return network(number)(batch).softmax(1)


def serve_actors(cluster: Any) -> list[str]:
    found = cluster.api("/api/v0/actors?detail=1&limit=1000")["data"]["result"]["result"]
    return [
        actor["class_name"]
        for actor in found
        if actor["state"] != "DEAD" and "serve" in json.dumps(actor["ray_namespace"])
    ]


def test_the_command_says_where_and_how(first, cluster, url):  # A46
    assert f"{url} answers with checkpoint_000001-abcd" in first
    assert "-F images=@a.jpg" in first
    assert "train output serveToken" in first
    for name in ("rayToken", "serveToken"):
        assert cluster.outputs[name] not in first


def test_the_answer_is_the_models_own(ask):  # A46
    images = [
        picture(1),
        picture(2, "JPEG"),
        picture(3, "WEBP"),
        picture(4, "PNG", "RGBA"),
        picture(5, "JPEG", "L"),
        *(picture(seed) for seed in range(6, 24)),  # more than one batch of the model
    ]
    reply = ask(*images)
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    number = answer["model"]["epochs"]
    assert answer["model"] == {
        "run": NAME,
        "checkpoint": f"checkpoint_{number:06d}-abcd",
        "epochs": number,
    }
    own = own_answer(number, images)
    assert len(answer["predictions"]) == len(images)
    for found, expected in zip(answer["predictions"], own, strict=True):
        values, indices = expected.topk(5)
        assert found["class"] == CLASSES[indices[0]]
        assert [each["class"] for each in found["top"]] == [CLASSES[i] for i in indices]
        given = torch.tensor([each["probability"] for each in found["top"]])
        assert torch.allclose(given, values, rtol=0, atol=1e-5)
    assert own.std(0).max() > 1e-2  # otherwise one answer would do for all images


def test_health_needs_no_token_and_all_else_does(url, cluster):  # A46
    assert requests.get(f"{url}/-/healthy", timeout=30).json()["status"] == "ready"
    root = cluster.outputs["serveUrl"]
    assert requests.get(f"{root}/-/healthz", timeout=30).text == "success"
    paths = ("/predict", "/x", "/docs", "/x/-/healthy")
    for path in (*(url + path for path in paths), f"{root}/x", f"{root}/-/routes"):
        for method in ("GET", "POST"):
            for headers, status in (
                ({}, 401),
                ({"Authorization": "Basic YWRtaW46"}, 401),
                ({"Authorization": "Bearer "}, 401),
                ({"Authorization": "Bearer " + "0" * 64}, 403),
                # A user who may ask a model may not run code, nor the other way round.
                ({"Authorization": f"Bearer {cluster.outputs['rayToken']}"}, 403),
            ):
                reply = requests.request(method, path, headers=headers, timeout=30)
                assert (reply.status_code, path) == (status, path)
                assert NAME not in reply.text
    dashboard = f"{cluster.outputs['dashboardUrl']}/api/jobs/"
    bearer = {"Authorization": f"Bearer {cluster.outputs['serveToken']}"}
    assert requests.get(dashboard, headers=bearer, timeout=30).status_code == 403


@pytest.mark.usefixtures("first")
def test_what_has_no_place_is_refused_or_withdrawn(cluster):
    result = cluster.train("serve", NAME, "--name", "big", "--cpus-per-replica", "3")
    assert result.returncode == 1
    assert "asks for CPU 3" in result.stderr
    options = ["--name", "second", "--cpus-per-replica", "2", "--timeout", "5"]
    result = cluster.train("serve", NAME, *options, timeout=SERVE_DEADLINE_S)
    assert result.returncode == 1
    assert "0 of 1 replicas of service second are ready after 5 s" in result.stdout
    assert "asks for CPU 2, and free in the cluster are 1" in result.stdout
    result = cluster.train("serve", "nobody", "--stop")
    assert f"no service is called 'nobody': there are {NAME}" in result.stderr
    [service] = json.loads(cluster.train("services", "--json").stdout)
    assert (service["service"], service["status"], service["replicas"]) == (NAME, "RUNNING", "1/1")


def test_a_service_is_updated_while_it_is_asked(cluster, ask, store):  # A46
    newest = store(2)
    damaged = store(3)
    key = f"{NAME}/{damaged}/{CHECKPOINT_FILE}"
    content = bytearray(cluster.read(key))
    content[len(content) // 2] ^= 1
    cluster.s3().put_object(Bucket="ray", Key=key, Body=bytes(content))
    image, done = picture(9), threading.Event()
    seen: list[object] = []

    def keep_asking() -> None:
        while not done.is_set():
            try:
                seen.append(ask(image).status_code)
            except requests.RequestException as error:
                seen.append(repr(error))
            done.wait(0.2)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        said = cluster.done("serve", NAME, timeout=SERVE_DEADLINE_S)
    finally:
        done.set()
        asking.join()
    assert f"warning: checkpoint {damaged} is not served" in said  # F23
    assert set(seen) == {200}
    answer = ask(image).json()
    assert (answer["model"]["checkpoint"], answer["model"]["epochs"]) == (newest, 2)
    given = torch.tensor([each["probability"] for each in answer["predictions"][0]["top"]])
    assert torch.allclose(given, own_answer(2, [image])[0].topk(5).values, rtol=0, atol=1e-5)


@pytest.fixture
def ask_script(first, cluster) -> Iterator[Callable[..., requests.Response]]:
    """Serves runs by their scripts, and sends them JSON; they are withdrawn at the end."""
    served = []

    def ask(run: str, inputs: Any) -> requests.Response:
        if run not in served:
            served.append(run)
            said = cluster.done("serve", run, "--cpus-per-replica", "0.2", timeout=SERVE_DEADLINE_S)
            assert "--json @inputs.json" in said
        bearer = {"Authorization": f"Bearer {cluster.outputs['serveToken']}"}
        address = f"{cluster.outputs['serveUrl']}/{run}/predict"
        return requests.post(address, json=inputs, headers=bearer, timeout=150)

    yield ask
    for run in served:
        cluster.done("serve", run, "--stop", timeout=SERVE_DEADLINE_S)


def test_a_job_of_train_new_is_trained_and_served_as_it_is(ask_script, cluster, tmp_path):  # A46
    cluster.done("new", "my_digits", "--folder", str(tmp_path))
    options = ("--name", "digits-1", "--", "--epochs", "3", "--workers", "1")
    told = cluster.done("submit", str(tmp_path / "my_digits.py"), *options, timeout=280)
    assert "valid_acc" in told
    digits = load_digits()
    reply = ask_script("digits-1", (digits.data / 16).tolist())
    assert reply.status_code == 200, reply.text
    assert (torch.tensor(reply.json()) == torch.tensor(digits.target)).float().mean() > 0.9


PLAIN = """
import os, pathlib, time

FILE = pathlib.Path(os.environ["TRAINYARD_OUTPUT"], "model.txt")


def predict(inputs):
    if inputs == "raise":
        raise RuntimeError("this input is bad")
    if inputs == "write":
        return (piece for piece in ("<b>no HTML</b>", ", streamed"))
    if inputs == "hang":
        from trainyard.serving import script

        script.TIMEOUT_S = 1.0  # this request's; a minute is long for a test
        time.sleep(600)
    print("asked", inputs)
    return {"weights": FILE.read_text(), "inputs": inputs}


if __name__ == "__main__":
    FILE.write_text("trained")
"""


def test_a_plain_script_with_predict_is_served_whatever_it_does(ask_script, cluster, tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN)
    cluster.done("submit", str(tmp_path / "plain.py"), "--name", "plain-1", "--on-head")
    assert ask_script("plain-1", [1]).json() == {"weights": "trained", "inputs": [1]}
    bad = ask_script("plain-1", "raise")
    line = "RuntimeError: this input is bad (plain.py, line 9: raise RuntimeError"
    assert (bad.status_code, bad.json()["detail"].startswith(line)) == (500, True)
    logs = "*/session_*/logs/serve/replica_plain-1_*.log"  # of any node
    wait_for("it", lambda: any(line in log.read_text() for log in cluster.folder.glob(logs)))
    late = ask_script("plain-1", "hang")
    assert (late.status_code, late.json()) == (504, {"detail": LATE})
    assert ask_script("plain-1", [2]).json()["inputs"] == [2]
    # What the replica prints, and its errors, are in the log of the service.
    wait_for("the lines", lambda: ") asked [2]" in cluster.done("logs", "plain-1"), 60)
    told = cluster.done("logs", "serve-plain-1")
    for part in (") asked [1]", "loads the output of run plain-1", line, "is ready"):
        assert part in told


@pytest.mark.skipif(browser.PROGRAM is None, reason="chromium is not on PATH")
def test_a_browser_tries_a_service_on_a_phone(ask_script, cluster, tmp_path):  # A46
    (tmp_path / "plain.py").write_text(PLAIN)
    cluster.done("submit", str(tmp_path / "plain.py"), "--name", "written", "--on-head")
    assert ask_script("written", [1]).ok
    (tmp_path / "a.png").write_bytes(picture(1))
    with browser.page() as page:
        page.size(*browser.PHONE)
        for service, given, wanted in (
            ("written", "write", "<b>no HTML</b>, streamed"),
            ("written", "[1]", '"weights": "trained"'),
            (NAME, "", "curl"),
        ):
            page.go(f"{cluster.outputs['serveUrl']}/{service}")
            page.wait_text(f"{service}, " if service == NAME else "written, plain.py")
            page.value("document.getElementById('token').focus()")
            page.type(cluster.outputs["serveToken"])
            if service == NAME:
                root = page.call("DOM.getDocument")["root"]["nodeId"]
                node = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
                files = [str(tmp_path / "a.png")]
                page.call("DOM.setFileInputFiles", files=files, nodeId=node)
            page.value(f"document.getElementById('text').value = {json.dumps(given)}")
            page.value("document.querySelector('button').click()")
            page.wait_text(wanted)
            assert page.value("document.documentElement.scrollWidth") <= browser.PHONE[0]
            assert page.value("document.querySelectorAll('b').length") == 0
        page.wait("document.querySelectorAll('meter').length == 5")
        assert page.errors == []


def test_a_request_that_is_too_large_is_refused(first, url, cluster):  # A46
    bearer = {"Authorization": f"Bearer {cluster.outputs['serveToken']}"}
    reply = requests.post(f"{url}/predict", data=bytes(100 * 2**20), headers=bearer, timeout=60)
    assert reply.status_code == 413
    assert "the request is larger than 32 MiB" in reply.json()["detail"]


def test_a_model_that_cannot_be_loaded_is_one_message(first, cluster, tmp_path):  # A46
    text = "def load(folder):\n    raise ValueError('these are no weights')\n"
    (tmp_path / "bad.py").write_text(f"{text}def predict(inputs, model): ...")
    cluster.done("submit", str(tmp_path / "bad.py"), "--name", "bad", "--on-head")
    result = cluster.train("serve", "bad", "--cpus-per-replica", "0.2", timeout=SERVE_DEADLINE_S)
    said = "error: service bad does not start: ValueError: these are no weights"
    assert (result.returncode, said in result.stdout.splitlines()) == (1, True)
    assert ") ValueError: these are no weights\n" in cluster.done("logs", "serve-bad")


def test_a_run_without_predict_is_refused_without_a_job(first, cluster, tmp_path):
    (tmp_path / "bare.py").write_text("print('hello')")
    cluster.done("submit", str(tmp_path / "bare.py"), "--name", "bare-1", "--on-head")
    before = cluster.jobs()
    result = cluster.train("serve", "bare-1")
    assert (result.returncode, result.stdout) == (1, "")
    assert "run 'bare-1' cannot be served: its script does not define predict(" in result.stderr
    assert cluster.jobs().keys() == before.keys()
    assert (
        "does not define predict"
        in json.loads(cluster.done("show", "bare-1", "--json"))["unservable"]
    )


@pytest.mark.usefixtures("first")
def test_the_token_is_in_no_log(cluster):
    logs = (Path(cluster.folder) / "r").glob("session_*/logs/**/*")
    found = [path for path in logs if path.is_file() and "serve" in str(path)]
    assert found
    for path in found:
        text = path.read_text(errors="replace")
        for name in ("rayToken", "serveToken"):
            assert cluster.outputs[name] not in text, path
