"""The digests of images: asked of a registry, kept in a file."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulumi
import pytest

from infra.settings import images, versions
from infra.settings.containers import IMAGE
from scripts import registry
from tests.fakes import registry as fake

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture
def there() -> Iterator[fake.Registry]:
    with fake.running() as found:
        yield found


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=10) as found:
        yield found


@pytest.fixture
def locked(tmp_path, monkeypatch) -> Iterator[Path]:
    """A file of digests, empty."""
    path = tmp_path / "digests.json"
    path.write_text("{}")
    monkeypatch.setattr(images, "LOCK", path)
    images.locked.cache_clear()
    yield path
    images.locked.cache_clear()


@pytest.mark.parametrize("asks_for_token", [False, True])
def test_a_registry_tells_the_digest_of_a_tag(there, client, asks_for_token):
    there.asks_for_token = asks_for_token
    expected = there.put("team/web", "1.0", "hello")
    assert registry.digest(there.name("team/web", "1.0"), client) == expected
    assert {method for method, path in there.asked if path.startswith("/v2/")} == {"HEAD"}
    scope = "/token?service=fake&scope=repository%3Ateam%2Fweb%3Apull"
    assert [path for method, path in there.asked if method == "GET"] == [scope] * asks_for_token


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "the image does not exist"),
        (410, "the image is gone"),
        (401, "asks for a login"),
        (403, "denies access"),
        (429, "too many requests"),
        (500, "try again later"),
    ],
)
def test_a_registry_that_refuses_is_named_with_the_reason(there, client, status, said):  # F31
    there.put("web", "1", "hello")
    there.answers["1"] = status
    with pytest.raises(registry.RegistryError) as raised:
        registry.digest(name := there.name("web", "1"), client)
    assert str(raised.value).startswith(f"{name}: http://127.0.0.1:{there.port} answers {status}; ")
    assert said in str(raised.value)


def test_an_answer_that_is_no_digest_is_not_taken(there, client):
    there.answers["1"] = 200
    for header in ({}, {"Docker-Content-Digest": "sha256:0"}):
        there.headers["1"] = header
        with pytest.raises(registry.RegistryError, match="tells no digest"):
            registry.digest(there.name("web", "1"), client)


def test_a_registry_that_is_not_there_is_named(client):
    with pytest.raises(
        registry.RegistryError, match=r"^127.0.0.1:9/web:1: http://127.0.0.1:9 does"
    ):
        registry.digest("127.0.0.1:9/web:1", client)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("debian:1", ("https://registry-1.docker.io", "library/debian", "1")),
        ("prom/prometheus:v3", ("https://registry-1.docker.io", "prom/prometheus", "v3")),
        ("docker.io/debian:1", ("https://registry-1.docker.io", "library/debian", "1")),
        ("quay.io/a/b:1", ("https://quay.io", "a/b", "1")),
        ("r.example:5000/b:1", ("https://r.example:5000", "b", "1")),
        ("localhost/b:1", ("http://localhost", "b", "1")),
        ("127.0.0.1:5000/b:1", ("http://127.0.0.1:5000", "b", "1")),
    ],
)
def test_a_reference_is_understood_as_docker_does(reference, expected):
    assert registry.parts(reference) == expected


def test_what_has_no_tag_is_not_asked_for():
    with pytest.raises(registry.RegistryError, match="not a name:tag"):
        registry.parts("debian")


def test_the_command_writes_what_registries_tell(there, locked, tmp_path, monkeypatch, capsys):
    (tmp_path / "docker" / "own").mkdir(parents=True)
    base, gone, mirror = (there.name(name, "1") for name in ("base", "gone", "mirror"))
    (tmp_path / "docker" / "own" / "Dockerfile").write_text(
        f"ARG BASE_IMAGE={base}\nFROM ${{BASE_IMAGE}}\n"
    )
    stack = {"trainyard:images": {"own": mirror, "web": f"x@{DIGEST}"}, "trainyard:workers": 2}
    (tmp_path / "Pulumi.lab.yaml").write_text(json.dumps({"config": stack}))
    (tmp_path / "Pulumi.dev.yaml").write_text("")
    monkeypatch.setattr(registry, "ROOT", tmp_path)
    monkeypatch.setattr(images, "CONTEXTS", tmp_path / "docker")
    monkeypatch.setattr(images, "BUILT", ("own",))
    monkeypatch.setattr(images, "PULLED", {"web": gone})
    monkeypatch.setattr(versions, "IMAGE_BASES", {"3.11": base})
    locked.write_text(json.dumps({gone: DIGEST, "old:1": DIGEST}))
    digests = {name: there.put(name, "1", name) for name in ("base", "mirror")}
    assert registry.lock() == 1
    assert f"error: {gone}: " in capsys.readouterr().err
    # Unused digests go; those that cannot be asked for stay unchanged.
    expected = {base: digests["base"], mirror: digests["mirror"], gone: DIGEST}
    assert json.loads(locked.read_text()) == expected
    digests["gone"] = there.put("gone", "1", "here again")
    assert registry.lock() == 0
    assert json.loads(locked.read_text()) == expected | {gone: digests["gone"]}
    images.locked.cache_clear()
    assert images.sources({}, {}, ["own"]) == {"buildArgs.BASE_IMAGE": f"{base}@{digests['base']}"}
    assert images.pinned(mirror) == f"{mirror}@{digests['mirror']}"
    assert images.pinned(f"{mirror}@{DIGEST}") == f"{mirror}@{DIGEST}"
    assert images.pinned("other:1") == "other:1"


def test_a_damaged_file_is_named(locked):
    locked.write_text("{")
    with pytest.raises(pulumi.RunError, match=r"digests.json is damaged .* run `make digests`"):
        images.pinned("web:1")


def test_the_committed_digests_are_of_images_that_are_used():  # F41
    digests = json.loads((registry.ROOT / "docker" / "digests.json").read_text())
    assert set(digests) <= set(registry._wanted())
    for reference, digest in digests.items():
        assert IMAGE.fullmatch(f"{reference}@{digest}")
        assert digest.startswith("sha256:")
