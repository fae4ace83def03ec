"""The application: a batch of images in, their classes out, over HTTP.

GET  /<service>             a page to try it (gate.py, try.html); needs no token
GET  /<service>/-/healthy   {"status": "ready", "model": {...}}; needs no token
POST /<service>/predict     a form with files in fields named `images`; or what a script takes
"""

# `serve.ingress` copies the application at definition, and replicas get that copy: names in its
# methods must be defined above it, and annotations must not be text.

import asyncio
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI, HTTPException, Request
from ray import serve
from starlette.responses import Response

from trainyard.resume import checkpoint_files
from trainyard.serving import likeliest, uploads
from trainyard.serving.gate import SERVICE_HEALTH, Gate
from trainyard.serving.predictor import Predictor
from trainyard.serving.replica_log import ReplicaLog
from trainyard.serving.script import ScriptModel
from trainyard.store.objects import open_url

ONGOING_REQUESTS = 16  # of a replica
QUEUED_REQUESTS = 64  # waiting for replicas; a further one gets 503
BATCH_IMAGES = 16
BATCH_WAIT_S = 0.005
START_ATTEMPTS = 2

app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
app.add_middleware(Gate)


@serve.deployment(
    name="model",
    max_ongoing_requests=ONGOING_REQUESTS,
    max_queued_requests=QUEUED_REQUESTS,
    max_constructor_retry_count=START_ATTEMPTS,
)
@serve.ingress(app)
class ModelReplica:
    """One replica, with the model in its memory."""

    _log: ReplicaLog | None = None
    _script: ScriptModel | None
    _model: dict[str, Any]

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Fetches and loads the `checkpoint` of the `run` in the `storage`, or its `own_code`.

        Raises:
            CheckpointError: its files do not match its manifest.
            JobError: the code is not of this cluster.
        """
        if self._log is None:
            here = serve.get_replica_context()
            store = open_url(config["storage"])
            self._log = ReplicaLog(store, here.app_name, here.replica_tag)
        self._log.write(f"loads {config['checkpoint'] or 'the output'} of run {config['run']}\n")
        try:
            self._load(config)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            self._log.store()  # Ray ends a replica that has not loaded

    def __del__(self) -> None:
        """Called by Ray Serve before it ends the replica."""
        if self._log:
            self._log.end()

    def _load(self, config: dict[str, Any]) -> None:
        self._script = None
        self._model = {key: config[key] for key in ("run", "checkpoint")}
        if config["own_code"]:
            self._script = ScriptModel(config, ONGOING_REQUESTS)
            self._model["script"] = self._script.name
            return
        run = open_url(f"{config['storage']}/{config['run']}")
        with tempfile.TemporaryDirectory() as folder:
            manifest = checkpoint_files.fetch(run, config["checkpoint"], Path(folder))
            self._predictor = Predictor(Path(folder), manifest["model"])
        self._model["epochs"] = self._predictor.epochs

    def check_health(self) -> None:
        """Called by Ray Serve."""
        if self._script:
            self._script.check_health()

    @app.get(SERVICE_HEALTH)
    def health(self) -> dict[str, Any]:
        """Answers once the model is loaded; until then Ray holds the request."""
        return {"status": "ready", "model": self._model}

    @app.post("/predict", response_model=None)
    async def predict(self, request: Request) -> dict[str, Any] | Response:
        """Classifies the images of a form, or asks the run's script."""
        try:
            if self._script:
                return await self._script.answer(request)
            body = await uploads.read_body(request.headers, request.stream())
            kind = request.headers.get("content-type", "")
            images = await asyncio.to_thread(self._images, kind, body)
        except uploads.UploadError as error:
            raise HTTPException(error.status, str(error)) from None
        found = await asyncio.gather(*(self._classify(image) for image in images))
        answers = [likeliest(self._predictor.classes, each.tolist()) for each in found]
        return {"predictions": answers, "model": self._model}

    @serve.batch(max_batch_size=BATCH_IMAGES, batch_wait_timeout_s=BATCH_WAIT_S)
    async def _classify(self, images: list[torch.Tensor]) -> list[torch.Tensor]:
        """Runs the images of simultaneous requests through the model together."""
        found = await asyncio.to_thread(self._predictor.probabilities, torch.stack(images))
        return list(found)

    def _images(self, content_type: str, body: bytes) -> list[torch.Tensor]:
        pictures = uploads.pictures(content_type, body)
        return [self._predictor.prepare(picture) for picture in pictures]
