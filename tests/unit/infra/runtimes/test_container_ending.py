"""Containers end and run again with a reservation, while others remove or replace some of them."""

from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, NotFound

from infra.hosts import docker_engine
from infra.runtimes import container_ending
from infra.runtimes.container_ending import Containers

SETTINGS = {"network": "lab", "notebook": None}


class Container:
    """`errors` are what the Engine answers to a method, by its name."""

    def __init__(self, name: str, status: str = "exited", **errors: Exception) -> None:
        self.name, self.status = name, status
        self.errors, self.called = errors, list[str]()
        self.attrs: dict[str, Any] = {
            "HostConfig": {"RestartPolicy": {"Name": "always"}},
            "State": {"Health": {"Status": "unhealthy"}},
        }

    def start(self) -> None:
        self._answer("start")

    def stop(self) -> None:
        self._answer("stop")

    def exec_run(self, words: list[str]) -> tuple[int, bytes]:
        self._answer("exec")
        return 0, b""

    def reload(self) -> None:
        self._answer("reload")
        self.attrs["State"]["Health"]["Status"] = "healthy"

    def _answer(self, method: str) -> None:
        self.called.append(method)
        if method in self.errors:
            raise self.errors[method]


def refused(code: int) -> APIError:
    return APIError("refused", SimpleNamespace(status_code=code, url="", reason=""))


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the containers of a network."""

    def of(*there: Container, **settings: object) -> Containers:
        def listed(*, all: bool, ignore_removed: bool, filters: object) -> list[Container]:  # noqa: A002 - docker's name
            assert all
            assert ignore_removed
            assert filters == {"network": "lab"}
            return list(there)

        client = SimpleNamespace(containers=SimpleNamespace(list=listed))
        monkeypatch.setattr(docker_engine, "of", lambda _: client)
        monkeypatch.setattr(container_ending, "POLL_SECONDS", 0)
        return Containers(SETTINGS | settings)

    return of


@pytest.mark.parametrize(
    "removed", [{"start": NotFound("gone")}, {"start": refused(409)}, {"reload": NotFound("gone")}]
)
def test_the_others_run_again_where_one_is_removed_meanwhile(  # D3
    of: Any, removed: dict[str, Exception]
) -> None:
    removed_one, other = Container("grafana", **removed), Container("head")
    of(removed_one, other).resume()
    assert {*removed} <= {*removed_one.called}
    assert other.called == ["start", "reload"]


def test_what_the_engine_cannot_start_is_told(of: Any) -> None:
    with pytest.raises(APIError, match="500 Server Error"):
        of(Container("grafana", start=refused(500))).resume()


def test_the_end_goes_on_where_one_is_removed_meanwhile(of: Any) -> None:  # D3
    there = Container("grafana", "running", stop=NotFound("gone")), Container("head", "running")
    of(*there, Container("dataset")).end()
    assert [each.called for each in there] == [["stop"], ["stop"]]


def test_the_notebook_is_told_later_where_it_has_just_ended(of: Any) -> None:  # D3
    notebook = Container("jupyter", "running", exec=refused(409))
    place = {"container": "jupyter", "folder": "/workspace"}
    containers = of(notebook, notebook=place, end="2026-12-01T13:00:00+00:00")
    containers.look()
    notebook.errors.clear()
    for _ in range(2):
        containers.look()
    assert notebook.called == ["exec", "exec"]
