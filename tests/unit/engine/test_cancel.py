"""Ctrl-C reaches the waits of dynamic providers that can end them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulumi.dynamic import CreateResult, ResourceProvider
from pulumi.dynamic.dynamic import serialize_provider

from engine.providers import DynamicProvider
from engine.recorded import PROVIDER_KEY, TrustedProviders

ROOT = Path(__file__).parents[3]
SECONDS = 20


class Patient(ResourceProvider):
    """Waits until it is canceled."""

    def configure(self, req):
        self.canceled = threading.Event()

    def create(self, props):
        props["begun"](None)
        return CreateResult("id", {"canceled": self.canceled.wait(SECONDS)})

    def cancel(self):
        self.canceled.set()


class Plain(ResourceProvider):
    """Cannot be canceled, like most classes."""

    def create(self, props):
        return CreateResult("id", {})


def _props(kind, **props):
    return {PROVIDER_KEY: serialize_provider(kind()), **props}


def test_cancel_ends_the_waits_of_classes_that_can():  # F11
    provider = DynamicProvider("project", {}, TrustedProviders(ROOT, ROOT))
    provider.create(_props(Plain))
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(provider.create, _props(Patient, begun=lambda _: begun.set()))
        assert begun.wait(SECONDS)
        start = time.monotonic()
        provider.cancel()
        assert job.result().outputs["canceled"] is True
    assert time.monotonic() - start < SECONDS / 2
