"""Asks image registries for the current digests of tags (OCI distribution API).

    python -m scripts.registry

asks for all images that this version, its Dockerfiles and the settings of the stacks name, and
writes docker/digests.json. Deliberately absent: logins. A registry that needs one is named, and
`docker pull` on a machine that is logged in prints the digest.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import httpx

from infra.operate.checkout import ROOT
from infra.settings import images, versions
from infra.settings.containers import IMAGE
from trainyard.access import settings_file, terminal, users_file

PROJECT = "trainyard"
DOCKER_HUB = "registry-1.docker.io"
TIMEOUT_SECONDS = 30.0
DIGEST_HEADER = "Docker-Content-Digest"
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
MEANINGS = {
    404: "the image does not exist: look at the name and the tag",
    410: "the image is gone: choose another tag, or a mirror's image",
    401: "it asks for a login: take the digest that `docker pull` prints where you are logged in",
    403: "it denies access to this image: take the digest that `docker pull` prints elsewhere",
    429: "too many requests: try again later, or name a mirror's image",
}


class RegistryError(Exception):
    """No digest; the message names the image, why, and what to do."""


def lock() -> int:
    """Ask for the digests of all images and write them down; return the exit status."""
    try:
        wanted = _wanted()
        known = images.locked()
    except images.LockError as error:
        terminal.warn(f"error: {error}")
        return 1
    found = {reference: known[reference] for reference in wanted if reference in known}
    failed = 0
    with httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=True) as client:
        for reference in wanted:
            try:
                found[reference] = digest(reference, client)
            except RegistryError as error:
                terminal.warn(f"error: {error}")
                failed += 1
            else:
                terminal.say(f"{reference}@{found[reference]}")
    users_file.replace(images.LOCK, json.dumps(found, indent=2, sort_keys=True) + "\n")
    terminal.say(f"{len(found)} of {len(wanted)} images have a digest in {images.LOCK}: commit it")
    return 1 if failed else 0


def digest(reference: str, client: httpx.Client) -> str:
    """Ask an image's registry for the digest of name:tag, or of its list of platforms.

    Raises:
        RegistryError: the registry does not tell.
    """
    registry, repository, tag = parts(reference)
    url = f"{registry}/v2/{repository}/manifests/{tag}"
    try:
        reply = client.head(url, headers={"Accept": MANIFESTS})
        if reply.status_code == httpx.codes.UNAUTHORIZED:
            token = _token(reply.headers.get("WWW-Authenticate", ""), repository, client)
            headers = {"Accept": MANIFESTS, "Authorization": f"Bearer {token}"}
            reply = client.head(url, headers=headers) if token else reply
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise RegistryError(
            f"{reference}: {registry} does not answer ({error}); name a mirror's image that this "
            "machine reaches"
        ) from None
    if reply.status_code != httpx.codes.OK:
        meaning = MEANINGS.get(reply.status_code, "try again later, or name a mirror's image")
        raise RegistryError(f"{reference}: {registry} answers {reply.status_code}; {meaning}")
    found: str = reply.headers.get(DIGEST_HEADER, "")
    if not DIGEST.fullmatch(found):
        raise RegistryError(
            f"{reference}: {registry} tells no digest ({DIGEST_HEADER}: {found[:80]!r}); take the "
            "one that `docker pull` prints"
        )
    return found


def parts(reference: str) -> tuple[str, str, str]:
    """Return an image's registry (its address), repository and tag, as Docker understands them."""
    found = IMAGE.fullmatch(reference)
    if found is None or not found["tag"]:
        raise RegistryError(f"{reference}: this is not a name:tag")
    host, _, path = found["name"].partition("/")
    if not path or not (host == "localhost" or "." in host or ":" in host):
        host, path = "docker.io", found["name"]
    if host in ("docker.io", "index.docker.io"):
        host, path = DOCKER_HUB, path if "/" in path else f"library/{path}"
    # Docker, too, talks to this machine without encryption.
    plain = re.fullmatch(r"localhost|127\.\d+\.\d+\.\d+", host.rpartition(":")[0] or host)
    return f"{'http' if plain else 'https'}://{host}", path, found["tag"]


def _token(challenge: str, repository: str, client: httpx.Client) -> str:
    """Return a token without a login; "" where the registry gives none."""
    asked = dict(CHALLENGE.findall(challenge))
    if not challenge.lower().startswith("bearer ") or not asked.get("realm"):
        return ""
    query = {"service": asked.get("service", ""), "scope": f"repository:{repository}:pull"}
    reply = client.get(asked["realm"], params=query)
    if reply.status_code != httpx.codes.OK:
        return ""
    answer = reply.json()
    return str(answer.get("token") or answer.get("access_token") or "")


def _wanted() -> list[str]:
    """Return every reference without a digest, of this version and of the stacks' settings."""
    programs = (*images.BUILT, *images.PULLED)
    references: set[str] = set()
    of_stacks = [_settings(path) for path in sorted(ROOT.glob("Pulumi.*.yaml"))]
    of_stacks += [({}, {"BASE_IMAGE": base}) for base in versions.IMAGE_BASES.values()]
    for named, arguments in of_stacks:
        references |= {*images.sources({**images.PULLED, **named}, arguments, programs).values()}
    found = {reference.partition("@")[0] for reference in references}
    return sorted(reference for reference in found if ":" in reference.rpartition("/")[2])


def _settings(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the images and the build arguments that a stack's settings name."""
    try:
        config = (settings_file.read(path) or {}).get("config") or {}
        return dict(config.get(f"{PROJECT}:images") or {}), dict(
            config.get(f"{PROJECT}:buildArgs") or {}
        )
    except (OSError, AttributeError, TypeError, ValueError) as error:
        raise images.LockError(f"cannot read {path} ({error}): fix it, then try again") from None


if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m scripts.registry", description=__doc__, allow_abbrev=False
    ).parse_args()
    sys.exit(lock())
