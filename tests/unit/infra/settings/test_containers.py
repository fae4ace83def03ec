"""Image references: what the grammar takes, and that our own are of it."""

import pytest

from infra.settings import containers as container_settings
from infra.settings import images

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "reference",
    [
        "haproxy:3.4.4",
        "prom/prometheus:v3.14.0",
        "trainyard-test/ray:latest",
        "localhost/ray:dev",
        "localhost:5000/a/b__c/d-e--f.g_h:1.0-rc.1_2",
        "registry.example.org/team/ray:2.60",
        "Registry.example.org:5000/ray:2.60",
        "[2001:db8::1]:5000/ray:2.60",
        f"ray@{DIGEST}",
        f"registry.example:5000/minio/minio:RELEASE.2025-09-07T16-13-09Z@{DIGEST}",
        "ray:" + "x" * 128,
    ],
)
def test_image_references_with_a_version_are_taken(reference):
    found = container_settings.IMAGE.fullmatch(reference)
    assert found is not None
    assert found["tag"] or found["digest"]


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "ray:",
        ":1",
        "ray:-1",
        "ray::1",
        "RAY:1",
        "ray/:1",
        "/ray:1",
        "a//ray:1",
        "a..b:1",
        "a___b:1",
        "-a:1",
        "a-:1",
        "a.b-/ray:1",
        "host:port/ray:1",
        "ray:1 ",
        "ray:1\n",
        "ray:é",
        "ray:" + "x" * 129,
        "ray@sha256:" + "0" * 63,
        "ray@sha256:" + "A" * 64,
        "ray@md5:" + "0" * 32,
        "docker.io/" + "a-" * 50_000,  # answers at once: the pattern does not try again and again
    ],
)
@pytest.mark.timeout(5)
def test_what_is_no_image_reference_is_not_taken(reference):
    assert container_settings.IMAGE.fullmatch(reference) is None


@pytest.mark.parametrize("reference", images.PULLED.values())
def test_images_that_are_pulled_are_pinned_to_a_version(reference):
    found = container_settings.IMAGE.fullmatch(reference)
    assert found is not None
    assert any(character.isdigit() for character in found["tag"])
