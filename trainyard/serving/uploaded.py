"""A run's own code in the store, signed: from the recorder of its job to a service.

`<run>/code.signed` is a zip file of the script that answers requests, small files of its upload,
and FACTS. Anyone who can write to a bucket can replace it, but not sign it for this cluster. In a
folder that only this user can write, it is trusted over the end of its cluster.
"""

import ast
import io
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from trainyard import json_values
from trainyard.errors import JobError
from trainyard.store import signed
from trainyard.store.objects import Store

FILE = "code.signed"
FACTS = ".trainyard.json"  # in it; no kept file has a hidden name
MOST_BYTES = 10 * 2**20  # of files, before they are packed
PREDICT, SERVED = "predict", "serve.deployment"
PACKAGES = ("pip", "uv", "conda")  # keys of a runtime environment


def entry(source: bytes) -> str:
    """Return what of a script answers requests: `predict`, or a class of Ray Serve; "" for none."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return ""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = {each.name: len(each.args.args) for each in body if isinstance(each, kinds)}
    gives_model = bool({"load", "network"} & functions.keys())
    if functions.get(PREDICT) in (1, 1 + gives_model):
        return PREDICT
    classes = (each for each in body if isinstance(each, ast.ClassDef))
    served = (c.name for c in classes if SERVED in "".join(map(ast.unparse, c.decorator_list)))
    return next(served, "")


def keep(
    store: Store,
    run: str,
    command: Sequence[str],
    folder: Path,
    names: Sequence[str],
    environment: Mapping[str, Any],
) -> str:
    """Stores the code of a run, if its job's script has an `entry`; returns that, "" for none.

    The command is `python SCRIPT …` or `python -m MODULE …`; `names` are files of the working
    folder that may be kept, and `environment` is the runtime environment.
    """
    file = f"{run}/{FILE}"
    script = command[1] if len(command) > 1 else ""
    if script == "-m":
        spec = find_spec(command[2])
        path = Path(spec.origin if spec and spec.origin else "")
        script, folder, names = path.name, path.parent, [path.name]
    what = entry((folder / script).read_bytes()) if script and script in names else ""
    if not what:
        store.delete(file)  # of an earlier job
        return ""
    packages = {key: environment[key] for key in PACKAGES if key in environment}
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr(FACTS, json.dumps({"script": script, "entry": what, "packages": packages}))
        for name in names:
            archive.writestr(name, (folder / name).read_bytes())
    store.write(file, signed.signed(packed.getvalue(), file, cluster_key()))
    return what


def read(store: Store, run: str, key: bytes | None) -> tuple[ZipFile, dict[str, Any]] | None:
    """Return a run's code and its facts; None without code.

    `key` is the cluster's. Without a key (None) the code is not checked.

    Raises:
        JobError: the code is not whole, or is not of this cluster.
    """
    name = f"{run}/{FILE}"
    stored = store.get(name)
    if stored is None:
        return None
    try:
        if key and not store.is_ours(name):
            content = signed.content_of(stored, name, key)
        else:
            content = stored[signed.HEADER_BYTES :]
        archive = ZipFile(io.BytesIO(content or b""))
        if (facts := json_values.parse_object(archive.read(FACTS))) is None:
            raise BadZipFile(f"{FACTS} in it is not a JSON object")
        if (size := sum(each.file_size for each in archive.infolist())) > 2 * MOST_BYTES:
            raise BadZipFile(f"it unpacks to {size >> 20} MiB")
    except (signed.SignatureError, BadZipFile, LookupError) as error:
        raise JobError(
            f"{name} in {store.where} was not stored by this stack with its present Ray token "
            f"({error}): submit the run again, or serve it with --trust-code if you trust everyone "
            "who can write to the store"
        ) from None
    return archive, facts


def cluster_key() -> bytes:
    """Return the key of this node's cluster; one without a token runs anyone's code."""
    try:
        return signed.cluster_key()
    except signed.SignatureError:
        return signed.derived("")
