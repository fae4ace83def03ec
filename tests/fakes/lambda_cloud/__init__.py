"""A cloud with Lambda's API, on this machine's loopback; see cloud.FakeCloud."""

from tests.fakes.lambda_cloud.account import Account, Boot, Instance
from tests.fakes.lambda_cloud.cloud import CloudProcess, FakeCloud, cloud_process
from tests.fakes.lambda_cloud.faults import HTML, Fault, Faults
from tests.fakes.lambda_cloud.journal import Entry, Journal
from tests.fakes.lambda_cloud.machines_protocol import Machines

__all__ = [
    "HTML",
    "Account",
    "Boot",
    "CloudProcess",
    "Entry",
    "FakeCloud",
    "Fault",
    "Faults",
    "Instance",
    "Journal",
    "Machines",
    "cloud_process",
]
