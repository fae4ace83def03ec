"""A cloud with Lambda's API, on this machine's loopback; see cloud.FakeCloud."""

from tests.fakes.lambda_cloud.cloud import FakeCloud

__all__ = ["FakeCloud"]
