"""What an upload holds: Ray's own rules, never a secret, never too much."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from ray._private.runtime_env.packaging import create_package

from client import package, scripts
from client.errors import ClientError
from client.package import NEVER_UPLOADED

SECRETS = [
    *(".git/config", ".pulumi/stacks/dev.json", "Pulumi.dev.yaml", "infra/Pulumi.lab.yaml"),
    *(".env", ".env.local", "a.pem", "deep/er/b.pem", "id_rsa", "id_rsa.pub", "keys/id_ed25519"),
    *("server.key", ".ssh/known_hosts", ".aws/credentials", ".netrc", "outputs.json"),
    *("dev-outputs.json", ".venv/bin/python", "a/__pycache__/b.pyc"),
]


def fill(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")


def packed(folder: Path, target: Path, excludes: list[str]) -> set[str]:
    """File names of the package that Ray makes."""
    create_package(str(folder), target, include_gitignore=True, excludes=excludes)
    with zipfile.ZipFile(target) as archive:
        return {item.filename for item in archive.infolist() if not item.is_dir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    fill(folder, [*SECRETS, "train.py", "lib/model.py", "Pulumi.yaml", "data/x.bin", "big/y.bin"])
    (folder / ".gitignore").write_text("data/\n")
    (folder / ".rayignore").write_text("big/\n")
    return folder


def test_no_state_and_no_key_is_packed(folder: Path, tmp_path: Path) -> None:  # F30 F35
    names = packed(folder, tmp_path / "p.zip", list(NEVER_UPLOADED))
    assert names == {"train.py", "lib/model.py", "Pulumi.yaml", ".gitignore", ".rayignore"}


def test_the_measure_is_of_what_ray_packs(folder: Path, tmp_path: Path) -> None:  # A40
    excludes = ["lib", *NEVER_UPLOADED]
    measured = {entry.name for entry in package.entries(folder, excludes)}
    assert measured == packed(folder, tmp_path / "p.zip", excludes)


def test_a_git_folder_of_two_gigabytes_is_not_sent(tmp_path: Path) -> None:  # F30
    fill(tmp_path, ["train.py", ".git/HEAD", "part/.git/HEAD", "part/model.py"])
    for folder in (tmp_path, tmp_path / "part"):
        with (folder / ".git/pack").open("wb") as file:
            file.truncate(2 * 1024 * package.MIB)  # of holes
    found = package.entries(tmp_path, list(NEVER_UPLOADED))
    assert {entry.name for entry in found} == {"train.py", "part/model.py"}
    package.check(found, "here", [])


def test_no_pattern_of_the_user_brings_a_secret_back(folder: Path, tmp_path: Path) -> None:
    excludes = ["!*.pem", "!.env", "!.pulumi/", *NEVER_UPLOADED]  # F30
    assert not packed(folder, tmp_path / "p.zip", excludes) & set(SECRETS)


def test_a_job_takes_its_own_package_along_and_nothing_of_the_client() -> None:
    for script in map(scripts.find, scripts.names()):
        assert script.module is not None
        names = {entry.name for entry in package.entries(script.module, list(NEVER_UPLOADED))}
        assert str(script.path.relative_to(script.module)) in names
        assert not {name for name in names if "client" in name}
        assert script.module.name == "training"


def test_a_size_beyond_rays_limit_names_the_ten_largest(tmp_path: Path) -> None:  # A40 F30
    for i in range(12):
        with (tmp_path / f"part{i:02d}.bin").open("wb") as file:
            file.truncate((i + 1) * 2 * package.MIB)  # 156 MiB of holes
    with pytest.raises(ClientError) as caught:
        package.check(package.entries(tmp_path, []), "here", [])
    message = str(caught.value)
    assert "156.0 MiB, at most 100 MiB" in message
    assert message.index("part11.bin") < message.index("part02.bin")
    assert "part01.bin" not in message


def test_the_limit_is_that_of_the_packed_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    entry = source / "x.bin"
    with entry.open("wb") as file:
        file.truncate(1000)
    target = tmp_path / "p.zip"
    packed(source, target, [])
    overhead = target.stat().st_size - 1000
    with entry.open("wb") as file:
        file.truncate(100 * package.MIB - overhead)
    package.check(package.entries(source, []), "source", [])
    with entry.open("ab") as file:
        file.write(b"1")
    with pytest.raises(ClientError, match="at most 100 MiB"):
        package.check(package.entries(source, []), "source", [])


def test_a_secret_in_any_file_is_found(tmp_path: Path) -> None:  # F35
    fill(tmp_path, ["train.py"])
    (tmp_path / "notes.txt").write_text("the token is canary-token-0123456789.")
    with pytest.raises(ClientError, match=r"notes\.txt in the upload of here holds a secret"):
        package.check(package.entries(tmp_path, []), "here", ["canary-token-0123456789"])


@pytest.mark.parametrize(
    ("location", "remote"),
    [("s3://b/x.zip", True), ("https://h/x.zip", True), (".", False), ("/a/b", False)],
)
def test_addresses_are_told_from_folders(location: str, remote: bool) -> None:
    assert package.is_remote(location) is remote
