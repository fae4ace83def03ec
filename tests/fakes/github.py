"""A server with the few calls of GitHub's REST API that gitops/ makes, as GitHub documents them."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests import web

REPOSITORY, TOKEN = "team/cluster", "canary-token"
BOT = "github-actions[bot]"
ID = 7  # of the repository
NOTHING = object()  # an answer without content


class GitHub:
    """The content of the repository.

    Attributes:
        comments: of pull requests and issues, by their number.
        issues: open and closed ones.
        merged: the pull request of each commit.
        closed: numbers of pull requests.
        unknown: numbers of none.
        artifacts: newest last.
        forbidden: methods that are answered with 403.
        started: workflows with their branch and inputs.
    """

    def __init__(self) -> None:
        self.url = ""
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.issues: list[dict[str, Any]] = []
        self.merged: dict[str, int] = {}
        self.closed: set[int] = set()
        self.unknown: set[int] = set()
        self.artifacts: list[dict[str, Any]] = []
        self.forbidden: set[str] = set()
        self.started: list[tuple[str, str, dict[str, str]]] = []
        self._ids = iter(range(100, 10**6))

    def add_comment(self, number: int, body: str, login: str = BOT) -> dict[str, Any]:
        made = {"id": next(self._ids), "body": body, "user": {"login": login}}
        self.comments.setdefault(number, []).append(made)
        return made

    def add_artifact(self, name: str, run: int, *, of: int = ID, expired: bool = False) -> None:
        made = {"name": name, "expired": expired, "created_at": f"2026-01-01T00:00:{run % 60:02}Z"}
        owner = {"id": run, "head_repository_id": of, "repository_id": ID}
        self.artifacts.append(made | {"workflow_run": owner})

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """The body of an answer; None for 404."""
        for pattern, function in ROUTES:
            if match := re.fullmatch(pattern, f"{method} {path}"):
                return function(self, query, body, *match.groups())
        return None


def _page(found: list[Any], query: dict[str, str]) -> list[Any]:
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    return found[(page - 1) * size : page * size]


def _edit_comment(github: GitHub, _: Any, body: Any, id_: str) -> Any:
    found = [c for each in github.comments.values() for c in each if c["id"] == int(id_)]
    found[0].update(body)
    return found[0]


def _add_issue(github: GitHub, _: Any, body: Any) -> Any:
    made = {"number": next(github._ids), "state": "open", "user": {"login": BOT}, **body}
    github.issues.append(made)
    return made


def _edit_issue(github: GitHub, _: Any, body: Any, number: str) -> Any:
    found = next(each for each in github.issues if each["number"] == int(number))
    found.update(body)
    return found


def _start(github: GitHub, _query: Any, body: Any, workflow: str) -> Any:
    github.started.append((workflow, body["ref"], body["inputs"]))
    return NOTHING


def _pulls(github: GitHub, _query: Any, _body: Any, commit: str) -> Any:
    number = github.merged.get(commit)
    return [{"number": number, "merged_at": "2026-01-01T00:00:00Z"}] if number else []


def _pull(github: GitHub, _query: Any, _body: Any, number: str) -> Any:
    if int(number) in github.unknown:
        return None
    return {"state": "closed" if int(number) in github.closed else "open"}


def _artifacts(github: GitHub, query: dict[str, str], _body: Any) -> Any:
    return {"artifacts": [a for a in reversed(github.artifacts) if a["name"] == query["name"]]}


ROUTES: list[tuple[str, Callable[..., Any]]] = [
    (r"GET issues/(\d+)/comments", lambda g, q, _, n: _page(g.comments.get(int(n), []), q)),
    (r"POST issues/(\d+)/comments", lambda g, _, b, n: g.add_comment(int(n), b["body"])),
    (r"PATCH issues/comments/(\d+)", _edit_comment),
    (r"GET issues", lambda g, q, _: _page([i for i in g.issues if i["state"] == q["state"]], q)),
    (r"POST issues", _add_issue),
    (r"PATCH issues/(\d+)", _edit_issue),
    (r"GET commits/(\w+)/pulls", _pulls),
    (r"GET actions/artifacts", _artifacts),
    (r"GET pulls/(\d+)", _pull),
    (r"POST actions/workflows/([\w.]+)/dispatches", _start),
]


@contextmanager
def serve() -> Iterator[GitHub]:
    """Serve an empty repository."""
    github = GitHub()

    def answer(asked: web.Request) -> web.Said:
        split = urlsplit(asked.path)
        body = json.loads(asked.body) if asked.body else None
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        prefix = f"/repos/{REPOSITORY}/"
        status, found = HTTPStatus.OK, None
        if asked.headers["Authorization"] != f"Bearer {TOKEN}":
            status = HTTPStatus.UNAUTHORIZED
        elif asked.command in github.forbidden:
            status = HTTPStatus.FORBIDDEN
        elif split.path.startswith(prefix):
            path = split.path.removeprefix(prefix)
            found = github.answer(asked.command, path, query, body)
        if found is None and status == HTTPStatus.OK:
            status = HTTPStatus.NOT_FOUND
        if found is NOTHING:
            return HTTPStatus.NO_CONTENT, b""
        return status, json.dumps(found).encode()

    with web.serving(answer) as server:
        github.url = server.url
        yield github
