import pytest

from trainyard.client import conda
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status


@pytest.fixture
def probe(monkeypatch):
    """Ends the job that asks; a list of what was sent, and what sends."""
    sent = []

    def send(_, **job):
        sent.append(job["entrypoint"])
        return "id"

    def answer(status):
        monkeypatch.setattr("trainyard.client.jobs.follow", lambda *_: Job(status=status))
        return sent, send

    return answer


class Outputs:
    stack = "dev"


def test_nobody_is_asked_without_conda(probe):
    sent, send = probe(Status.FAILED)
    conda.check({"pip": ["numpy"]}, None, Outputs(), send)
    assert sent == []


def test_a_head_with_conda_takes_the_job(probe):
    sent, send = probe(Status.SUCCEEDED)
    conda.check({"conda": "aims-ray"}, None, Outputs(), send)
    assert sent == [conda.PROBE]


def test_a_head_without_conda_is_told_what_to_install(probe):  # B25
    _, send = probe(Status.FAILED)
    with pytest.raises(ClientError, match=r"'dev' has no conda.*install Miniforge.*`pip`"):
        conda.check({"conda": {"dependencies": ["numpy"]}}, None, Outputs(), send)
