"""The few calls of GitHub's REST API that the workflows need."""

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from infra.operate.gitops import GitopsError

API, TOKEN, REPOSITORY = "GITHUB_API_URL", "GITHUB_TOKEN", "GITHUB_REPOSITORY"
BRANCH = "GITHUB_REF_NAME"
AUTHOR = "GITHUB_LOGIN"  # the token's user, if it is not WORKFLOW
WORKFLOW = "github-actions[bot]"  # the user of a workflow's own token
PAGE_ITEMS = 100  # GitHub's maximum
TIMEOUT_SECONDS = 30
LONGEST = 65_000  # characters of a comment or an issue; GitHub takes 65,536
MARK = "<!--"
CUT = "\n\n(cut here: the whole page is in the run's summary and in its artifact)\n"


class GitHub:
    """A repository, as the token of a workflow reaches it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Take address, repository and token from the variables that GitHub sets in each job.

        Raises:
            GitopsError: one of them is not set.
        """
        if missing := [name for name in (API, TOKEN, REPOSITORY) if not environment.get(name)]:
            raise GitopsError(
                f"{', '.join(missing)} not set: run this in a workflow, with "
                "GITHUB_TOKEN: ${{ github.token }} in the step's env"
            )
        self._branch = environment.get(BRANCH, "main")
        self._author = environment.get(AUTHOR) or WORKFLOW
        self._api, self._token, self._repository = (
            environment[name] for name in (API, TOKEN, REPOSITORY)
        )

    def comment(self, number: int, page: str, *, new: bool = True) -> str:
        """Write a comment on a pull request; it replaces one with the same first line.

        That line is a mark that readers do not see.

        Args:
            number: of the pull request.
            page: Markdown.
            new: whether to write it even without an earlier one.

        Returns:
            "created", "updated" or "none".

        Raises:
            GitopsError: also for a page without a mark, which any comment could match.
        """
        mark = page.partition("\n")[0].strip()
        if not mark.startswith(MARK):
            raise GitopsError(f"the page begins with {mark!r}, not with a mark ({MARK} … -->)")
        for each in self._all(f"issues/{number}/comments"):
            # Anybody can begin a comment like that: only our own is overwritten.
            first = each["body"].partition("\n")[0].strip()
            if each["user"]["login"] == self._author and first == mark:
                self._call("PATCH", f"issues/comments/{each['id']}", {"body": _fitting(page)})
                return "updated"
        if not new:
            return "none"
        self._call("POST", f"issues/{number}/comments", {"body": _fitting(page)})
        return "created"

    def report(self, title: str, page: str, *, found: bool) -> str:
        """Keep one open issue of a title while something is found, and close it afterwards.

        Returns:
            "created", "updated" or "closed"; "none" when nothing is found and none is open.
        """
        number = next(
            (
                each["number"]
                for each in self._all("issues?state=open")
                if each["title"] == title and each["user"]["login"] == self._author
            ),
            0,
        )
        if found and not number:
            self._call("POST", "issues", {"title": title, "body": _fitting(page)})
            return "created"
        if found:
            self._call("PATCH", f"issues/{number}", {"body": _fitting(page)})
            return "updated"
        if not number:
            return "none"
        self._call("POST", f"issues/{number}/comments", {"body": _fitting(page)})
        self._call("PATCH", f"issues/{number}", {"state": "closed"})
        return "closed"

    def start(self, workflow: str, **inputs: str) -> None:
        """Start a workflow of this run's branch, as by hand."""
        body = {"ref": self._branch, "inputs": inputs}
        self._call("POST", f"actions/workflows/{workflow}/dispatches", body)

    def is_closed(self, number: int) -> bool:
        return bool(self._call("GET", f"pulls/{number}")["state"] == "closed")

    def run_with(self, artifact: str, commit: str) -> tuple[int, str]:
        """Return the run that made the newest artifact for a commit's pull request, and its name.

        The name that is given lacks the pull request's number: plan-prod.

        Raises:
            GitopsError: the commit has no pull request, or that has no such artifact.
        """
        remedy = "run the workflow deploy by hand: it makes a plan and applies that"
        pulls: list[dict[str, Any]] = self._call("GET", f"commits/{commit}/pulls")
        merged = [each["number"] for each in pulls if each["merged_at"]]
        if not merged:
            raise GitopsError(f"commit {commit} has no pull request, so no plan is known: {remedy}")
        name = f"{artifact}-{merged[0]}"
        query = urllib.parse.urlencode({"name": name})
        made: list[dict[str, Any]] = self._call("GET", f"actions/artifacts?{query}")["artifacts"]
        runs = [
            (each["created_at"], each["workflow_run"]["id"])
            for each in made
            if not each["expired"]
            # A fork can give an artifact any name.
            and each["workflow_run"]["head_repository_id"] == each["workflow_run"]["repository_id"]
        ]
        if not runs:
            raise GitopsError(f"pull request {merged[0]} has no artifact {name}: {remedy}")
        return int(max(runs)[1]), name

    def _all(self, path: str) -> Iterator[dict[str, Any]]:
        for page in range(1, 1000):
            sign = "&" if "?" in path else "?"
            found = self._call("GET", f"{path}{sign}per_page={PAGE_ITEMS}&page={page}")
            yield from found
            if len(found) < PAGE_ITEMS:
                return

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the runner's own address
            f"{self._api}/repos/{self._repository}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        what = f"{method} {path.partition('?')[0]}"
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            raise GitopsError(
                f"GitHub refuses {what} ({error.code}): {_remedy(error.code)}"
            ) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise GitopsError(f"GitHub does not answer {what} ({why}): run the job again") from None


def _remedy(status: int) -> str:
    if status in (401, 403):
        return (
            "give the job's token the right (permissions: pull-requests, issues or actions: "
            "write), which a fork's pull request never has; the page is in the run's summary"
        )
    if status == 404:
        return "check the number, and that the job may read it (permissions)"
    return "run the job again"


def _fitting(page: str) -> str:
    return page if len(page) <= LONGEST else page[: LONGEST - len(CUT)] + CUT
