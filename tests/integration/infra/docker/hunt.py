"""A search for the secrets of a lab in all places where they could be exposed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests import secret_hunt

OUTPUTS = (
    *("rayToken", "serveToken", "secretKey", "prometheusPassword", "grafanaPassword"),
    *("trackingPassword", "pagePassword"),
)
FILES = "/etc/trainyard"
ADDED = 1  # Docker's code for it
ROOT_PASSWORD = "/etc/trainyard/root-password"
RAY_LOGS = "cat $(find /tmp/ray/session_latest/logs -type f) 2>/dev/null"


def finds_of(lab: Any, outputs: dict[str, Any]) -> list[str]:
    """The exposed secrets of a lab, with their places.

    Args:
        lab: that is up.
        outputs: of the stack, with its secrets.
    """
    secrets = {name: outputs[name] for name in OUTPUTS if outputs[name]}
    secrets["token of the notebook"] = outputs["notebookUrl"].rpartition("token=")[2]
    (store,) = {"minio", "versitygw"} & set(lab.containers())
    root = lab.container(store).exec_run(["cat", ROOT_PASSWORD])
    assert root.exit_code == 0, root.output
    secrets["root password of the store"] = root.output.decode().strip()
    found = {name: secret for name, secret in secrets.items() if secret}
    return secret_hunt.finds(found, _places(lab))


def _places(lab: Any) -> Iterator[tuple[str, bytes]]:
    yield "what was said", "".join(lab.stack.said).encode()
    for service, container in lab.containers().items():
        yield f"inspect {service}", json.dumps(container.attrs).encode()
        yield f"log of {service}", container.logs()
        yield f"image of {service}", json.dumps(container.image.attrs).encode()
        yield f"history of {service}", json.dumps(container.image.history()).encode()
        if service.startswith("ray-"):
            yield f"Ray's logs of {service}", container.exec_run(["sh", "-c", RAY_LOGS]).output
        # The files that hold them were added to the container, and are in no layer of its image.
        inside = [each for each in container.diff() or [] if each["Path"].startswith(FILES)]
        assert all(each["Kind"] == ADDED for each in inside), service
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield f"command line of {process.name()}", " ".join(process.cmdline()).encode()
            yield f"environment of {process.name()}", json.dumps(process.environ()).encode()
    backend = Path(lab.stack.environment["PULUMI_BACKEND_URL"].removeprefix("file://"))
    for path in backend.rglob("*"):
        if path.is_file():
            yield path.name, path.read_bytes()
