"""A run's checkpoint as a model of MLflow: `mlflow.pyfunc.load_model("models:/food11@champion")`.

MLflow finds FILE in the checkpoint's folder, imports this module, and calls `_load_pyfunc`. A run
whose script has a `predict` answers with it: its code lies beside the weights, and loading the
model runs it, as with all models of MLflow.
"""

from __future__ import annotations

import importlib.util
import io
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import GeneratorType
from typing import Any
from zipfile import ZipFile

from trainyard.errors import JobError
from trainyard.resume import checkpoint_files
from trainyard.serving import lacking, likeliest, uploaded
from trainyard.store.objects import FolderStore, Store

FILE = checkpoint_files.MLFLOW_MODEL


def describe(run: Store, checkpoint: str, manifest: Mapping[str, Any], code: bytes | None) -> None:
    """Writes what MLflow needs into a run's checkpoint, unless nothing can answer for its model.

    `code` is the content of the run's signed file of code, None without one.
    """
    if FILE in manifest["files"] or (code is None and lacking(manifest["model"])):
        return
    if code is not None:
        run.write(f"{checkpoint}/{uploaded.FILE}", code)
    flavor = {"loader_module": __name__, "python_version": platform.python_version()}
    # JSON is YAML.
    run.write(f"{checkpoint}/{FILE}", json.dumps({"flavors": {"python_function": flavor}}).encode())


class Model:
    """What `mlflow.pyfunc` calls; the files in `scratch` live as long as it does."""

    def __init__(
        self, ask: Callable[[Any], Any], scratch: tempfile.TemporaryDirectory[str]
    ) -> None:
        self._ask, self._scratch = ask, scratch

    def predict(self, inputs: Any) -> Any:
        """Return the answer of the run's `predict`; or the likeliest class of each image.

        Images are a list of files' paths or contents. Of a table the rows are taken, and the values
        alone where it has one column.
        """
        if hasattr(inputs, "to_numpy"):
            inputs = inputs.to_numpy()
        if hasattr(inputs, "tolist"):
            inputs = (inputs.ravel() if inputs.shape[1:] == (1,) else inputs).tolist()
        found = self._ask(inputs)
        return "".join(found) if isinstance(found, GeneratorType) else found


def _load_pyfunc(path: str) -> Model:
    """Called by MLflow with the folder that it has downloaded.

    Raises:
        CheckpointError: the files do not match their manifest.
        JobError: the run answers as a class of Ray Serve.
    """
    folder = Path(path)
    store = FolderStore(folder.parent)
    scratch = tempfile.TemporaryDirectory(prefix="trainyard-model-")
    code, checkpoint = Path(scratch.name, "code"), Path(scratch.name, "checkpoint")
    manifest = checkpoint_files.fetch(store, folder.name, checkpoint)
    if found := uploaded.read(store, folder.name, None):
        return Model(_of_script(*found, code, checkpoint), scratch)
    return Model(_of_images(checkpoint, manifest["model"]), scratch)


def _of_script(
    packed: ZipFile, facts: Mapping[str, Any], code: Path, checkpoint: Path
) -> Callable[[Any], Any]:
    from trainyard.serving.script import predict_of  # noqa: PLC0415 - runs do not answer

    if facts["entry"] != uploaded.PREDICT:
        raise JobError("the run answers as a class of Ray Serve: `train serve` starts it")
    packed.extractall(code)
    script = code / facts["script"]
    sys.path.insert(0, str(script.parent))  # as for a script
    # Not as `__main__`: that is the program that loads the model.
    spec = importlib.util.spec_from_file_location(f"trainyard_model_{script.stem}", script)
    assert spec and spec.loader  # noqa: S101, PT018 - it ends with .py
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return predict_of(vars(module), checkpoint)


def _of_images(checkpoint: Path, model: dict[str, Any]) -> Callable[[Any], Any]:
    import torch  # noqa: PLC0415 - runs do not answer

    from trainyard import pictures  # noqa: PLC0415
    from trainyard.serving.predictor import Predictor  # noqa: PLC0415

    predictor = Predictor(checkpoint, model)

    def ask(images: Sequence[str | bytes]) -> list[dict[str, Any]]:
        files = [io.BytesIO(each) if isinstance(each, bytes) else each for each in images]
        found = torch.stack([predictor.prepare(pictures.read(file)) for file in files])
        return [
            likeliest(predictor.classes, row) for row in predictor.probabilities(found).tolist()
        ]

    return ask
