"""The program that ends pods, with an API that the tests give; the rest needs a cluster."""

import json
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.client import BadStatusLine
from pathlib import Path
from typing import Any

from infra.runtimes.kubernetes import pods_end
from tests.waiting import wait_for

RAY, WEB, DATA, DONE, OWN = "/ray/test", "/deployments/web", "/jobs/data", "/jobs/done", "/own"


def refusal(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("https://api", code, "no", Message(), None)


def test_all_that_runs_is_deleted_and_its_own_at_last_whatever_the_api_does() -> None:  # D3
    troubles = {RAY: [OSError("away"), refusal(500), BadStatusLine("")], WEB: [refusal(403)]}
    deleted: list[str] = []

    def asked(method: str, path: str) -> dict[str, Any] | None:
        if troubles.get(path):
            raise troubles[path].pop(0)
        if method == "GET":
            times = {"completionTime": "2026-12-01T13:00:00Z"} if path == DONE else {}
            return {"status": times}
        deleted.append(path)
        return None if path == WEB else {}

    slept: list[float] = []
    pods_end.delete([RAY, WEB, DATA, DONE, OWN], asked, slept.append)
    assert deleted == [RAY, DATA, OWN]
    assert len(slept) == 3  # not after what the Role refuses


def test_the_workers_leave_before_the_end_and_a_failed_drain_delays_nothing(  # D3
    tmp_path: Path, monkeypatch: Any
) -> None:
    leave, seen = tmp_path / "leave.py", tmp_path / "seen"
    events: list[Any] = []
    monkeypatch.setattr(pods_end, "delete", lambda paths, _: events.append(paths))
    over = tmp_path / "over"
    waits = (
        f"import os, time; [os.path.exists({str(over)!r}) or time.sleep(0.1) for _ in range(99)]"
    )
    hangs = f"; f = {str(seen)!r}; {waits}; os.path.exists(f) and open(f, 'a').write(' late')"
    for ends in ("", "; sys.exit(1)", hangs):  # F82
        seen.unlink(missing_ok=True)
        leave.write_text(f"import sys; open({str(seen)!r}, 'w').write(repr(sys.argv[1:])){ends}")
        end = datetime.now(UTC) + timedelta(seconds=2)
        settings = {
            "end": end.isoformat(),
            "drainSeconds": 60,
            "leave": [str(leave), "head:1", "*"],
        }
        pods_end.main({**settings, "objects": [OWN]})
        assert datetime.now(UTC) >= end
        wait_for("the drain", lambda: seen.exists() and seen.read_text().endswith("]"), 30)
        *words, seconds = json.loads(seen.read_text().replace("'", '"'))
        assert words == ["head:1", "*", "drain"]
        assert 0 < float(seconds) <= 2
    over.touch()
    assert events == [[OWN]] * 3
