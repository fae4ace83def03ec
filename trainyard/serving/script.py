"""The `predict` of a run's script, or its class of Ray Serve, as a service."""

import asyncio
import inspect
import itertools
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from trainyard.errors import JobError
from trainyard.report import results
from trainyard.resume import checkpoint_files, code_faults
from trainyard.serving import uploaded, uploads
from trainyard.store import archive
from trainyard.store.objects import open_url
from trainyard.tracking.run_folder import OUTPUT
from trainyard.user_code import load_script

LOGGER = logging.getLogger("ray.serve")
TIMEOUT_S = 60.0  # of one request
MOST_HANGING = 8  # of a replica's requests; then Ray Serve replaces the replica
# `curl -d` says that its data is a form.
JSON_TYPES = ("", "application/json", "application/x-www-form-urlencoded")


class ScriptModel:
    """The loaded script of a run, with what the run has left; `name` is the script's."""

    def __init__(self, config: Mapping[str, Any], at_once: int) -> None:
        """Fetches the run's files, and loads its script and model.

        `config` has `storage`, `run`, `checkpoint` ("" for none) and `trust_code`.

        Raises:
            JobError: the code is not of this cluster.
            CheckpointError: the checkpoint's files do not match its manifest.
        """
        run, name, store = config["run"], config["checkpoint"], open_url(config["storage"])
        found = uploaded.read(store, run, None if config["trust_code"] else uploaded.cluster_key())
        if found is None:
            raise JobError(f"run {run!r} has lost its code: submit it again")
        packed, facts = found
        self._temporary = tempfile.TemporaryDirectory(prefix="trainyard-service-")
        top = Path(self._temporary.name)
        packed.extractall(top / "code")
        output = top / OUTPUT
        output.mkdir()
        for file in store.listed(f"{run}/{OUTPUT}"):
            if not archive.fault_of_name(file):  # any writer of a bucket names its objects
                (output / file).parent.mkdir(parents=True, exist_ok=True)
                store.download(f"{run}/{OUTPUT}/{file}", output / file)
        if name:
            checkpoint_files.fetch(open_url(f"{config['storage']}/{run}"), name, top / name)
        os.environ["TRAINYARD_OUTPUT"] = str(output)
        os.chdir(top / "code")
        self.name = facts["script"]
        self._takes_request = facts["entry"] != uploaded.PREDICT
        script = vars(load_script(self.name))
        self._call = (
            script[facts["entry"]].func_or_class().__call__
            if self._takes_request
            else predict_of(script, top / name if name else output)
        )
        self._most = at_once + MOST_HANGING
        self._threads = ThreadPoolExecutor(self._most)
        self._running: list[Future[Any]] = []

    async def answer(self, request: Request) -> Response:
        """Answers a request.

        Raises:
            UploadError: 400: the body is not what its type says, or the script does not take it;
                413: it is too large.
            HTTPException: 500: the script raised an error; 504: it did not answer in time.
        """
        given = request if self._takes_request else await inputs(request)
        if inspect.iscoroutinefunction(self._call):
            work = asyncio.ensure_future(self._call(given))
        else:
            thread = self._threads.submit(lambda: _begun(self._call(given)))
            self._running = [*(each for each in self._running if not each.done()), thread]
            work = asyncio.wrap_future(thread)
        try:
            await asyncio.wait({work}, timeout=TIMEOUT_S)
            if work.done():
                return _rendered(work.result())
        except JobError as error:  # by `predict`: the request is at fault
            raise uploads.UploadError(400, str(error)) from None
        except (Exception, SystemExit) as error:
            code_faults.note(error)
            line = code_faults.error_line(error)
            LOGGER.exception("a request is answered with 500: %s", line)
            raise HTTPException(500, line) from None
        finally:
            work.cancel()  # which a thread does not notice
        raise HTTPException(504, f"no answer within {TIMEOUT_S:g} s: ask for less at a time")

    def check_health(self) -> None:
        """Called by Ray Serve, which replaces a replica that raises an error here."""
        if sum(not each.done() for each in self._running) >= self._most:
            raise RuntimeError(f"at least {MOST_HANGING} requests hang")


async def inputs(request: Request) -> Any:
    """Return what `predict` gets: JSON as its values, a text as str, anything else as bytes."""
    body = await uploads.read_body(request.headers, request.stream())
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind in JSON_TYPES:
            return json.loads(body)
        return body.decode() if kind.startswith("text/") else body
    except (ValueError, RecursionError) as error:
        raise uploads.UploadError(400, f"the body is not {kind or 'JSON'}: {error}") from None


def predict_of(script: Mapping[str, Any], files: Path) -> Callable[[Any], Any]:
    """Return a script's `predict` with the model that it asks for, of a checkpoint's files."""
    predict: Callable[[Any], Any] = script[uploaded.PREDICT]
    for name in list(inspect.signature(predict).parameters)[1:]:
        load = script.get("load")
        model = load(files) if load else results.load(files, network=script["network"]())
        predict = partial(predict, **{name: model})
    return predict


def _begun(found: Any) -> Any:
    """Return a generator as a response that is streamed, with its first piece computed.

    What is wrong with a request is known then, before the answer's status is sent.
    """
    if not inspect.isgenerator(found):
        return found
    pieces: Iterator[Any] = itertools.chain([next(found, "")], found)
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8")


def _rendered(found: Any) -> Response:
    """Return an answer: a response as it is; else JSON, with arrays and tensors as lists."""
    if isinstance(found, Response):
        return found
    text = json.dumps(found, default=lambda each: each.tolist(), allow_nan=False)
    return Response(text, media_type="application/json")
