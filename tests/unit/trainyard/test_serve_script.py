"""A run's own script answers requests: inputs, errors, hanging; and whose code it is."""

import asyncio
import io
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from zipfile import ZipFile

import pytest
import torch
import transformers
import xgboost
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from starlette.exceptions import HTTPException
from starlette.requests import Request

from trainyard.client import scripts
from trainyard.data import digits
from trainyard.errors import JobError
from trainyard.jobs import digits_accelerate, train_model
from trainyard.models import char_gpt
from trainyard.models import digits as digits_models
from trainyard.models.char_gpt import CharGpt, Size
from trainyard.resume import checkpoint_files
from trainyard.serving import deploy, script, uploaded, uploads
from trainyard.serving.script import ScriptModel
from trainyard.serving.uploads import UploadError
from trainyard.store import signed
from trainyard.store.objects import FolderStore, Listed
from trainyard.tracking.run_folder import CHECKPOINT_FILE

RUN = "mine"
TINY = Size(1, 2, 8, block=8, batch_size=4, dropout=0.0, steps=20)
KEY = signed.derived("the cluster's token")
SCRIPT = """
import os, pathlib, sys, threading
import helper

LET_GO = threading.Event()
WEIGHTS = pathlib.Path(os.environ["TRAINYARD_OUTPUT"], "deep", "model.txt").read_text()


def predict(inputs):
    if inputs == "raise":
        raise RuntimeError("a long story\\nthis input is bad")
    if inputs == "exit":
        sys.exit("bye")
    if inputs in ("nan", "odd"):
        return {"nan": float("nan"), "odd": object()}[inputs]
    if inputs == "hang":
        LET_GO.wait()
    return {"weights": WEIGHTS, "inputs": repr(inputs), "helped": helper.HELPED}


if __name__ == "__main__":
    raise AssertionError("a service does not train")
"""


class Kept:
    """A store with the run `mine`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder / "upload", FolderStore(folder / "store")
        self.folder.mkdir()

    def keep(self, text: str, name: str = "plain.py", **environment: Any) -> str:
        (self.folder / name).write_text(text)
        (self.folder / "helper.py").write_text("HELPED = True")
        command = ["python", name, "--width", "3"]
        return uploaded.keep(
            self.store, RUN, command, self.folder, [name, "helper.py"], environment
        )

    def serve(self, checkpoint: str = "", **changes: Any) -> ScriptModel:
        config = {"storage": self.store.where, "run": RUN, "checkpoint": checkpoint}
        return ScriptModel(config | {"trust_code": False} | changes, 2)


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Iterator[Kept]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signed, "cluster_key", lambda: KEY)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setenv("TRAINYARD_OUTPUT", "")
    kept = Kept(tmp_path)
    kept.store.write(f"{RUN}/output/deep/model.txt", b"weights")
    yield kept
    sys.modules.pop("helper", None)


def ask(model: ScriptModel, body: bytes, kind: str = "application/json") -> Any:
    return asyncio.run(asked(model, body, kind))


async def asked(model: ScriptModel, body: bytes, kind: str = "application/json") -> Any:
    return json.loads((await model.answer(request(body, kind))).body)


def request(body: bytes, kind: str = "application/json") -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return Request({"type": "http", "headers": [(b"content-type", kind.encode())]}, receive)


def test_a_plain_script_answers_with_what_its_run_has_left(kept, monkeypatch):
    assert kept.keep(SCRIPT) == "predict"
    model = kept.serve()
    for kind, body, inputs in (
        ("application/json; charset=utf-8", b'{"a": [1]}', "{'a': [1]}"),
        ("application/x-www-form-urlencoded", b"[1.5]", "[1.5]"),  # of `curl -d`
        ("text/plain", "é".encode(), "'é'"),
        ("image/png", b"\xff", r"b'\xff'"),
    ):
        answer = {"weights": "weights", "inputs": inputs, "helped": True}
        assert ask(model, body, kind) == answer
    for kind, body in (("application/json", b"[1"), ("", b""), ("text/plain", b"\xff")):
        with pytest.raises(UploadError, match="the body is not") as refused:
            ask(model, body, kind)
        assert refused.value.status == 400
    monkeypatch.setattr(uploads, "MAX_BODY_BYTES", 9)
    with pytest.raises(UploadError, match="send less at a time"):
        ask(model, b"[" + b" " * 9 + b"]")


def test_names_of_a_buckets_writer_stay_in_the_folder(kept, tmp_path, monkeypatch):
    kept.keep(SCRIPT)
    real = FolderStore.listed
    evil = {"../../stolen.txt": Listed(1, "")}
    monkeypatch.setattr(FolderStore, "listed", lambda *given: real(*given) | evil)
    monkeypatch.setattr(script.tempfile, "tempdir", str(tmp_path))
    kept.store.write("stolen.txt", b"x")
    assert ask(kept.serve(), b"1")["weights"] == "weights"
    assert [*tmp_path.rglob("stolen.txt")] == [tmp_path / "store" / "stolen.txt"]


def test_an_error_is_a_line_for_the_caller_and_the_log_and_the_service_goes_on(kept, caplog):
    kept.keep(SCRIPT)
    model = kept.serve()
    line = "RuntimeError: this input is bad (plain.py, line 11: raise RuntimeError("
    for body, said in (
        (b'"raise"', line),
        (b'"exit"', "SystemExit: bye (plain.py, line 13"),
        (b'"nan"', "ValueError: Out of range float values are not JSON compliant"),
        (b'"odd"', "AttributeError: 'object' object has no attribute 'tolist'"),
    ):
        with pytest.raises(HTTPException) as failed:
            ask(model, body)
        assert failed.value.status_code == 500
        assert failed.value.detail.startswith(said)
        assert said in caplog.text
    assert ask(model, b"1")["inputs"] == "1"


def test_one_that_hangs_ends_in_time_and_holds_up_no_other(kept, monkeypatch):
    kept.keep(SCRIPT)
    model = kept.serve()
    monkeypatch.setattr(script, "TIMEOUT_S", 0.01)
    go_on = sys.modules["__main__"].LET_GO
    try:
        for number in itertools.count():
            if number < script.MOST_HANGING:  # two more threads are free
                monkeypatch.setattr(script, "TIMEOUT_S", 30.0)
                assert ask(model, b"1")["inputs"] == "1"
                monkeypatch.setattr(script, "TIMEOUT_S", 0.01)
            try:
                model.check_health()
            except RuntimeError:
                break
            with pytest.raises(HTTPException, match=r"no answer within 0\.01 s") as late:
                ask(model, b'"hang"')
            assert late.value.status_code == 504
        # Not less; a request whose thread began too late to hang was given up before.
        assert number >= 2 + script.MOST_HANGING
        with pytest.raises(RuntimeError, match="at least 8 requests hang"):
            model.check_health()  # Ray Serve replaces the replica
    finally:
        go_on.set()


LOADED = """
def load(folder):
    return (folder / "deep" / "model.txt").read_text()

async def predict(inputs, model):
    return [model, inputs]
"""
SERVED = """
from ray import serve

@serve.deployment(num_replicas=2)
class Model:
    def __init__(self):
        self.model = "weights"

    async def __call__(self, request):
        return [self.model, await request.json()]
"""


@pytest.mark.filterwarnings("ignore:Using extra keyword")  # of Ray Serve
@pytest.mark.parametrize("text", [LOADED, SERVED])
def test_a_loaded_model_and_a_class_of_ray_serve_answer(text, kept):
    kept.keep(text)
    assert ask(kept.serve(), b"[1]") == ["weights", [1]]


PIECES = """
def predict(inputs):
    from trainyard.errors import JobError
    if not inputs:
        raise JobError("send more")
    for each in inputs:
        yield each
        if each == "!":
            raise RuntimeError("too late for a status")
"""


def test_a_generator_is_streamed_and_a_request_that_it_refuses_is_told_before(kept):
    async def streamed(body: bytes) -> list[Any]:
        response = await model.answer(request(body))
        assert (response.status_code, response.media_type) == (200, "text/plain; charset=utf-8")
        return [piece async for piece in response.body_iterator]

    kept.keep(PIECES)
    model = kept.serve()
    assert asyncio.run(streamed(b'["a", "b"]')) == ["a", "b"]
    with pytest.raises(UploadError, match="send more") as refused:
        ask(model, b"[]")
    assert refused.value.status == 400
    with pytest.raises(RuntimeError, match="too late"):
        asyncio.run(streamed(b'["!"]'))


def stored(kept: Kept, job: str) -> None:
    """Stores what a run of a job leaves, with tiny weights, and keeps the job's script."""
    folder = kept.folder / "checkpoint"
    folder.mkdir()
    model = {"job": job}
    pixels, labels = (each.numpy() for each in digits.read_pixels())
    if job == "digits_xgboost":
        data = xgboost.DMatrix(pixels.reshape(-1, 64), labels)
        booster = xgboost.train({"objective": "multi:softprob", "num_class": 10}, data, 5)
        booster.save_model(folder / "model.ubj")
    elif job == "digits_lightgbm":
        import lightgbm  # after PyTorch, which brings libgomp: Debian 13 has none of its own

        options = {"objective": "multiclass", "num_class": 10, "verbosity": -1}
        data = lightgbm.Dataset(pixels.reshape(-1, 64), labels)
        lightgbm.train(options, data, 5).save_model(folder / "model.txt")
    elif job == "digits_transformers":
        size = {"hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1}
        kind = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10}
        vit = transformers.ViTConfig(num_attention_heads=1, **size, **kind)
        network = transformers.ViTForImageClassification(vit)
        network.save_pretrained(folder / "checkpoint")
    elif job == "digits_accelerate":
        state = {"model": digits_accelerate.network().state_dict()}
        torch.save(state, folder / CHECKPOINT_FILE)
    elif job == "train_lightning":
        model |= {"network": {"kind": "mlp", "hidden_dims": [4]}, "image_side": 16}
        network = digits_models.build(OmegaConf.create(model["network"]), 16)
        state = {"state_dict": {f"model.{k}": v for k, v in network.state_dict().items()}}
        torch.save(state, folder / "checkpoint.ckpt")
        model |= {"prefix": "model.", "file": "checkpoint.ckpt"}
    else:
        torch.save({"model": CharGpt(TINY, 3).state_dict()}, folder / CHECKPOINT_FILE)
        model = char_gpt.description("small", "abc", job)
    run = FolderStore(Path(kept.store.where.removeprefix("file://")) / RUN)
    if job in {"digits_xgboost", "digits_lightgbm", "digits_transformers"}:
        for when in ("2026-11-28_23", "2026-11-29_08"):  # the first is of an earlier epoch
            for path in folder.rglob("*"):
                if path.is_file():
                    name = f"checkpoint_{when}/{path.relative_to(folder)}"
                    run.write(name, path.read_bytes() if when > "2026-11-29" else b"x")
        checkpoint_files.adopt(run, model)
    else:
        checkpoint_files.add(run, folder, model)
    assert uploaded.keep(kept.store, RUN, ["python", "-m", f"trainyard.jobs.{job}"], folder, [], {})


def trained(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains train_model as a job of the run does, and keeps its script."""
    monkeypatch.setenv("TRAINYARD_STORAGE_URL", kept.store.where)
    monkeypatch.setenv("TRAINYARD_RUN", RUN)
    with initialize_config_dir(str(scripts.JOBS / "config"), version_base="1.3"):
        config = compose("train", ["model=mlp", "accelerator=cpu", "train.epochs=3"])
    train_model.main.__wrapped__(config)
    assert uploaded.keep(
        kept.store, RUN, ["python", "-m", "trainyard.jobs.train_model"], kept.folder, [], {}
    )


DIGITS = ("digits_xgboost", "digits_lightgbm", "digits_transformers", "digits_accelerate")


@pytest.mark.parametrize("job", [*DIGITS, "train_lightning", "train_model"])
def test_a_run_of_a_framework_is_served_without_a_line_of_its_user(  # A46
    job, kept, monkeypatch
):
    if job == "train_model":  # the course's own: trained here
        trained(kept, monkeypatch)
    else:
        stored(kept, job)
    name = deploy._choose(kept.store.where, RUN, None, own_code=True)
    model = kept.serve(name)
    pixels, labels = digits.read_pixels()
    rows = pixels.flatten(1)[:20]
    answers = ask(model, json.dumps(rows.tolist()).encode())["predictions"]
    assert len(answers) == 20
    for answer in answers:
        assert answer["top"][0] == {k: answer[k] for k in ("class", "probability")}
        assert sum(each["probability"] for each in answer["top"]) <= 1.001
    if job in {"digits_xgboost", "digits_lightgbm", "train_model"}:  # which have learned
        found = torch.tensor([int(answer["class"]) for answer in answers])
        assert (found == labels[:20]).sum() >= 18
    for bad in (
        b"[]",
        b"[[1]]",
        b'"x"',
        b"[[17" + b",1" * 63 + b"]]",
        b"[[NaN" + b",1" * 63 + b"]]",
    ):
        with pytest.raises(UploadError, match="64 numbers from 0 to 16") as refused:
            ask(model, bad)
        assert refused.value.status == 400


@pytest.mark.parametrize("job", ["chargpt", "chargpt_tune"])
def test_a_character_gpt_goes_on_with_a_text(job, kept, monkeypatch):  # A46
    monkeypatch.setitem(char_gpt.SIZES, "small", TINY)
    stored(kept, job)
    model = kept.serve(deploy._choose(kept.store.where, RUN, None, own_code=True))

    async def written() -> list[str]:
        response = await model.answer(request(b"abca", "text/plain"))
        return [piece async for piece in response.body_iterator]

    pieces = asyncio.run(written())
    assert len(pieces) == 500
    assert set(pieces) <= {*"abc"}
    for body, said in (
        (b"a" * 5001, "has 5,001 characters: send a text, at most 5,000 long"),
        (b"abd", "the vocabulary of 3 characters lacks 'd'"),
    ):
        with pytest.raises(UploadError, match=said):
            ask(model, body, "text/plain")
    with pytest.raises(UploadError, match="has no text"):
        ask(model, b"[1]")


NETWORK = """
from torch import nn, ones
def network():
    return nn.Linear(2, 1, bias=False)
def predict(inputs, model):
    return model(ones(inputs)).detach()
"""


def test_a_network_gets_the_weights_of_the_checkpoint(kept, tmp_path):
    kept.keep(NETWORK)
    name, saved = "checkpoint_000001-abcd", tmp_path / "saved"
    saved.mkdir()
    state = {"model": {"weight": torch.tensor([[1.0, 2.0]])}}
    torch.save(state, saved / CHECKPOINT_FILE)
    checkpoint_files.store(FolderStore(tmp_path / "store" / RUN), name, saved, {"job": "mine"})
    assert ask(kept.serve(name), b"[1, 2]") == [[3.0]]
    with pytest.raises(JobError, match=r"output is not a checkpoint: define load\(folder\)"):
        kept.serve()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def predict(inputs): ...", "predict"),
        ("async def predict(inputs): ...", "predict"),
        ("def predict(inputs, model): ...", ""),
        ("def network(): ...\ndef predict(inputs, model): ...", "predict"),
        ("def predict(): ...", ""),
        ("class A:\n    def predict(self): ...", ""),
        ("@serve.deployment\nclass A: ...", "A"),
        ("@dataclass\nclass A: ...", ""),
        ("print('hello')", ""),
        ("def predict(", ""),
        ("\0", ""),
    ],
)
def test_what_answers_is_known_without_running_the_script(text, found):
    assert uploaded.entry(text.encode()) == found


def test_a_job_of_the_library_keeps_its_script_alone_and_one_without_predict_nothing(kept):
    command = ["python", "-m", "trainyard.jobs._template", "--epochs", "3"]
    assert uploaded.keep(kept.store, RUN, command, Path.cwd(), [], {"pip": ["x"], "env_vars": {}})
    packed, facts = uploaded.read(kept.store, RUN, KEY) or pytest.fail("no code")
    assert packed.namelist() == [uploaded.FACTS, "_template.py"]
    assert facts == {"script": "_template.py", "entry": "predict", "packages": {"pip": ["x"]}}
    command = ["python", "-m", "tests.nowhere"]
    assert uploaded.keep(kept.store, RUN, command, Path.cwd(), [], {}) == ""
    kept.keep(SCRIPT)
    assert kept.keep("print('hello')") == ""
    assert uploaded.read(kept.store, RUN, KEY) is None


def test_code_that_the_cluster_has_not_stored_is_not_run(kept, tmp_path):
    kept.keep(SCRIPT)
    name = f"{RUN}/{uploaded.FILE}"
    stored = kept.store.read(name)
    assert uploaded.read(kept.store, RUN, signed.derived("another token"))  # a folder of our own
    (tmp_path / "store" / RUN).chmod(0o777)  # which others can write
    others = "was not stored by this stack with its present Ray token"
    with pytest.raises(JobError, match=f"{others}.*submit the run again, or serve it with --trust"):
        uploaded.read(kept.store, RUN, signed.derived("another token"))
    assert uploaded.read(kept.store, RUN, None) is not None
    for harm in (stored[:-1] + b"x", stored[:-1], stored[signed.HEADER_BYTES :], b""):
        kept.store.write(name, harm)
        with pytest.raises(JobError, match=others):
            kept.serve()
    kept.store.write(f"other/{uploaded.FILE}", stored)  # signed for another run
    (tmp_path / "store/other").chmod(0o777)
    with pytest.raises(JobError, match=others):
        uploaded.read(kept.store, "other", KEY)


@pytest.mark.parametrize("facts", [None, "{", "[" * 100_000, "{}"])
def test_code_that_is_not_whole_is_one_message_in_a_folder_of_ones_own(facts, kept, monkeypatch):
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        if facts:
            archive.writestr(uploaded.FACTS, facts)
    kept.store.write(f"{RUN}/{uploaded.FILE}", bytes(signed.HEADER_BYTES) + packed.getvalue())
    monkeypatch.setattr(uploaded, "MOST_BYTES", 0)
    with pytest.raises(JobError, match="was not stored by this stack"):
        uploaded.read(kept.store, RUN, KEY)


def test_a_cluster_without_a_token_runs_anyones_code(kept, monkeypatch):
    without = signed.SignatureError("found no Ray token")
    monkeypatch.setattr(signed, "cluster_key", Mock(side_effect=without))
    kept.keep(SCRIPT)
    assert uploaded.read(kept.store, RUN, signed.derived("")) is not None
    assert os.environ["TRAINYARD_OUTPUT"] == ""
    assert ask(kept.serve(), b"1")["helped"]
