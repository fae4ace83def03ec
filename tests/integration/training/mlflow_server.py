"""A real MLflow with passwords, and its data about a run."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.integration.training.services import service
from tests.ports import free_ports
from tests.waiting import wait_for
from trainyard.tracking import tracking

PASSWORD = "canary-password-0123456789"
START_DEADLINE_S = 120


@dataclass
class Server:
    """A tracking server, and a user's access to it."""

    url: str
    credentials: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment of a node of a stack with MLflow."""
        return {
            tracking.URI_VARIABLE: self.url,
            tracking.CREDENTIALS_VARIABLE: str(self.credentials),
        }

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        """MLflow's API, without its client."""
        return self._call("POST", path, json=body)

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """The same for requests that change nothing."""
        return self._call("GET", path, params=query)

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        url = f"{self.url}/api/2.0/mlflow/{path}"
        reply = requests.request(method, url, auth=("admin", PASSWORD), timeout=30, **options)
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    def run(self, name: str) -> dict[str, Any]:
        """The only run of that name."""
        experiments = self.ask("experiments/search", max_results=100)["experiments"]
        ids = [each["experiment_id"] for each in experiments]
        text = f"attributes.run_name = '{name}'"
        found = self.ask("runs/search", experiment_ids=ids, filter=text).get("runs", [])
        assert len(found) == 1, found
        return dict(found[0])

    def steps(self, name: str, metric: str) -> list[tuple[int, float]]:
        """All values of a metric, in the order of their steps."""
        run_id = self.run(name)["info"]["run_id"]
        found = self.get("metrics/get-history", run_id=run_id, metric_key=metric)
        return sorted((int(m.get("step", 0)), m["value"]) for m in found.get("metrics", []))

    def versions(self, model: str) -> list[dict[str, Any]]:
        """The versions of a model."""
        found = self.get("model-versions/search", filter=f"name='{model}'")
        return list(found.get("model_versions", []))


@contextmanager
def tracking_server(folder: Path) -> Iterator[Server]:
    """Runs one as the stack's: with passwords, SQLite, and artifacts through the server."""
    [port] = free_ports(1)
    (folder / "auth.ini").write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{folder}/users.db\nadmin_username = admin\n"
        f"admin_password = {PASSWORD}\nauth_cache_ttl_seconds = 300\n"
    )
    (folder / "credentials").write_text(
        f"[mlflow]\nmlflow_tracking_username = admin\nmlflow_tracking_password = {PASSWORD}\n"
    )
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--app-name=basic-auth", "--workers=1"),
        *("--host=127.0.0.1", f"--port={port}", "--serve-artifacts"),
        f"--backend-store-uri=sqlite:///{folder}/mlflow.db",
        f"--artifacts-destination={folder}/artifacts",
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")} | {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "x" * 32,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        return requests.get(f"{url}/health", timeout=1).ok

    with service(command, env, folder / "server.log"):
        wait_for("MLflow", answers, START_DEADLINE_S)
        yield Server(url, folder / "credentials")
