"""The notice of the queue, without a cluster."""

from types import SimpleNamespace

import pytest

from trainyard.errors import JobError
from trainyard.resume import notices
from trainyard.resume.notices import Notices

QUEUE = b"gcs://trainyard_yield_job-1.zip"


def test_a_job_ends_with_what_the_queue_says(monkeypatch):
    packages = {}
    monkeypatch.setattr(notices, "_internal_kv_get", packages.get)
    monkeypatch.setattr(notices.collective, "barrier", lambda: None)
    of_job = Notices(0, 1)
    of_job._started, of_job._package = True, QUEUE
    of_job._watch = SimpleNamespace(get_latest_preemption_info=lambda: None)
    assert of_job.due() is None
    packages[QUEUE] = b"its GPUs were below 5 %"
    info = of_job.due()
    assert info == "its GPUs were below 5 %"
    with pytest.raises(JobError, match=info):
        of_job.leave(info)
