"""Key files: new ones are for one user; ones that others can touch are refused."""

import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from infra.machines import keys
from infra.machines.keys import KeyPair
from tests.ssh_keys import keygen, new_key
from trainyard.access.key_file import KeyFileError


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".ssh" / "key.pem"


@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_a_new_file_is_for_its_user_only(path, mask):  # A10, F38
    before = os.umask(mask)
    try:
        if mask == 0o777:
            path.parent.mkdir()
            path.parent.chmod(0o700)
        keys.write(path, keys.generate())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_new_file_is_opened_as_new_and_private(path, monkeypatch):  # F38
    """Nobody can read it for a moment; results alone would not show that."""
    opened = []
    real = os.open

    def recorded(place, flags, mode=0o777, **rest):
        opened.append((place, flags, mode))
        return real(place, flags, mode, **rest)

    monkeypatch.setattr(os, "open", recorded)
    keys.write(path, keys.generate())
    ((_, flags, mode),) = [each for each in opened if str(path.parent) in str(each[0])]
    assert mode == 0o600
    for needed in (os.O_CREAT, os.O_EXCL, os.O_NOFOLLOW):
        assert flags & needed == needed
    assert [*path.parent.iterdir()] == [path]


def test_a_disk_that_is_full_leaves_no_part_of_a_file(path, monkeypatch, full):  # F16
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        KeyFileError, match=r"cannot be made \(No space left on device\); make room"
    ):
        keys.write(path, keys.generate())
    assert [*path.parent.iterdir()] == []


def test_what_is_written_is_read_again(path):
    pair = keys.generate()
    keys.write(path, pair)
    assert keys.read(path) == pair
    assert keys.same(keygen("-y", "-f", path), pair.public)


def test_no_file_is_no_key(path):
    assert keys.read(path) is None


def test_a_file_that_is_there_is_not_written_over(path):  # F38
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(KeyFileError, match="cannot be made"):
        keys.write(path, keys.generate())
    assert path.read_text() == "precious"


def test_a_link_is_not_followed(path, tmp_path):  # F38
    target = tmp_path / "target"
    path.parent.mkdir()
    path.symlink_to(target)
    with pytest.raises(KeyFileError):
        keys.write(path, keys.generate())
    assert not target.exists()


@pytest.mark.parametrize("content", ["", "no key", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"])
def test_what_is_no_key_is_refused(path, content):
    path.parent.mkdir()
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="is not a private key that SSH can use"):
        keys.read(path)


@pytest.mark.parametrize(
    "form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8, PrivateFormat.OpenSSH]
)
def test_rsa_keys_of_every_form_are_read(path, form):
    key = generate_private_key(65537, 2048)
    path.parent.mkdir()
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    path.chmod(0o600)
    assert keys.read(path).public.startswith("ssh-rsa ")


@pytest.mark.parametrize("arguments", [["-t", "ed25519"], ["-t", "rsa", "-m", "PEM"]])
def test_a_key_with_a_passphrase_needs_its_public_half(path, arguments):
    path.parent.mkdir()
    new_key(path, "secret", *arguments)
    public = path.with_name("key.pem.pub")
    line = public.read_text().strip()
    public.unlink()
    with pytest.raises(KeyFileError, match="has a passphrase"):
        keys.read(path)
    public.write_text(f"{line}\n")
    assert keys.read(path) == KeyPair(public=line, private="")


def test_only_the_same_key_is_removed(path):
    pair = keys.generate()
    keys.write(path, pair)
    assert not keys.remove(path, keys.generate().private)
    assert path.exists()
    assert keys.remove(path, pair.private)
    assert not path.exists()
    assert not keys.remove(path, pair.private)


def test_what_took_the_place_of_a_key_is_not_removed(path, tmp_path):  # F38
    pair = keys.generate()
    keys.write(tmp_path / "elsewhere", pair)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    assert keys.remove(path, pair.private) is False
    assert path.is_symlink()
    assert (tmp_path / "elsewhere").exists()
    path.unlink()
    assert keys.remove(path, pair.private) is False


def test_a_file_may_be_in_folders_that_do_not_exist(tmp_path):
    path = tmp_path / "keys" / "lab" / "key.pem"
    keys.write(path, keys.generate())
    assert keys.read(path)


def test_comments_do_not_make_another_key():
    assert keys.same("ssh-ed25519 AAAA me", "ssh-ed25519 AAAA trainyard:0a1b2c3d generated")
    assert not keys.same("ssh-ed25519 AAAA", "ssh-ed25519 AAAB")


def test_no_private_key_in_a_representation():  # F35
    # Line by line: a representation has no line breaks.
    lines = [line for line in keys.generate().private.splitlines() if line]
    shown = repr(KeyPair(public="", private="\n".join(lines)))
    assert not [line for line in lines if line in shown]
