"""The content of an upload: the files that git would keep, no secret, and not too much."""

import codecs
import logging
import os
import random
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from ray._private.runtime_env.packaging import unzip_package

from trainyard.client import listing, package, scripts
from trainyard.client.errors import ClientError
from trainyard.client.listing import NEVER_UPLOADED

SECRETS = [
    *(".git/config", ".pulumi/stacks/dev.json", "Pulumi.dev.yaml", "infra/Pulumi.lab.yaml"),
    *(".env", ".env.local", "a.pem", "deep/er/b.pem", "id_rsa", "id_rsa.pub", "keys/id_ed25519"),
    *("server.key", ".ssh/known_hosts", ".aws/credentials", ".netrc", "outputs.json"),
    *("dev-outputs.json", ".venv/bin/python", "a/__pycache__/b.pyc"),
]


def fill(folder, names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(f"content of {name}"))


def unpacked(content, target):
    """A package on a node, unpacked by Ray: modes by name."""
    archive = target.with_suffix(".zip")
    archive.write_bytes(content)
    unzip_package(str(archive), str(target), False, True, logging.getLogger("unzip"))
    return {
        str(path.relative_to(target)): path.stat().st_mode & 0o777
        for path in target.rglob("*")
        if path.is_file()
    }


def names(folder, excludes=()):
    return [entry.name for entry in listing.of_folder(folder, list(excludes)).files]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "work"
    fill(folder, [*SECRETS, "train.py", "lib/model.py", "Pulumi.yaml", "data/x.bin", "big/y.bin"])
    (folder / ".gitignore").write_text("data/\n")
    (folder / ".rayignore").write_text("big/\n")
    return folder


@pytest.mark.parametrize("of_the_user", [[], ["!*.pem", "!.env", "!.pulumi/"]])
def test_no_state_and_no_key_is_packed(of_the_user, folder, tmp_path):  # F30 F35
    content = package.pack(listing.of_folder(folder, [*of_the_user, *NEVER_UPLOADED]))
    there = unpacked(content, tmp_path / "node")
    assert set(there) == {"train.py", "lib/model.py", "Pulumi.yaml", ".gitignore", ".rayignore"}


def test_a_name_like_a_secrets_is_told_and_a_users_own_pattern_is_not(tmp_path, capsys):
    fill(tmp_path, ["certs/ca.pem", "model/answers.key", "x_outputs.json", "own.key", "job.py"])
    fill(tmp_path, [".git/HEAD", ".venv/bin/x", "__pycache__/x.pyc"])
    (tmp_path / ".gitignore").write_text("own.key\n")
    package.packages({"working_dir": str(tmp_path), "excludes": [*NEVER_UPLOADED]})
    left = (
        f"{name} (named like a secret)"
        for name in ("x_outputs.json", "model/answers.key", "certs/ca.pem")
    )
    assert f"not uploaded of {tmp_path}: {', '.join(left)}\n" in capsys.readouterr().out


def test_each_pattern_of_secrets_is_in_the_docs():
    page = (Path(__file__).parents[4] / "docs/train.md").read_text()
    assert [each for each in listing.SECRETS if f"`{each}`" not in page] == []


def test_what_is_no_file_is_left_out_and_named(tmp_path):  # F59
    folder = tmp_path / "work"
    fill(folder, ["train.py", "lib/model.py", "other/x.py"])
    os.mkfifo(folder / "pipe")
    (folder / "lib/up").symlink_to(folder)
    (folder / "lib/across").symlink_to(folder / "other")
    (folder / "other/back").symlink_to(folder / "lib")
    (folder / "self").symlink_to("self")
    (folder / "gone").symlink_to("nowhere")
    (folder / "empty").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.path.relpath(folder / "sock"))
        found = listing.of_folder(folder, [])
    assert [entry.name for entry in found.files] == [
        *("lib/across/x.py", "lib/model.py", "other/back/model.py", "other/x.py", "train.py")
    ]
    assert sorted(found.skipped) == [
        "gone (broken link)",
        "lib/across/back (link to a folder that holds it)",
        "lib/up (link to a folder that holds it)",
        "other/back/across (link to a folder that holds it)",
        "other/back/up (link to a folder that holds it)",
        "pipe (FIFO)",
        "self (broken link)",
        "sock (socket)",
    ]
    unpacked(package.pack(found), tmp_path / "node")
    assert (tmp_path / "node/empty").is_dir()


def test_names_beyond_counting_are_refused(tmp_path, monkeypatch):  # F59
    for i in range(9):
        (tmp_path / f"f{i}").mkdir()
        for k in range(9):
            (tmp_path / f"f{i}/to{k}").symlink_to(tmp_path / f"f{k}")
    monkeypatch.setattr(listing, "MOST_FILES", 1000)
    with pytest.raises(ClientError, match=r"more than 1000 files .* leave some out"):
        listing.of_folder(tmp_path, [])


def test_what_cannot_be_read_is_one_message_unless_it_is_ignored(tmp_path, monkeypatch):  # F59
    fill(tmp_path, ["train.py", "closed/x", "closed.txt"])
    listdir, read_bytes = os.listdir, Path.read_bytes  # root may read what no mode allows

    def refused(path):
        if path.name == "closed":
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    def refused_file(path):
        if path.name == "closed.txt":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(os, "listdir", refused)
    monkeypatch.setattr(Path, "read_bytes", refused_file)
    with pytest.raises(ClientError, match=r"cannot read closed/ in .*Permission denied"):
        listing.of_folder(tmp_path, [])
    found = listing.of_folder(tmp_path, ["closed/"])
    with pytest.raises(ClientError, match=r"cannot read closed\.txt in"):
        package.check_upload("here", found, ["secret"])
    assert names(tmp_path, ["closed*"]) == ["train.py"]


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"a\\b.txt", b"c:x.txt", b"d\xe9/x"])
def test_names_that_no_node_would_have_are_refused(name, tmp_path):  # F59
    path = tmp_path / os.fsdecode(name)
    fill(tmp_path, [str(path)])
    with pytest.raises(ClientError, match="rename it, or leave it out") as caught:
        listing.of_folder(tmp_path, [])
    str(caught.value).encode()
    assert names(tmp_path, ["*.txt", "d*"]) == []


def test_ignore_files_are_read_as_git_reads_them(tmp_path):  # F59
    fill(tmp_path, ["a.log", "b.txt", "dir/c.log", "dir/keep.log", "plain", "sub/x.py", "sub/y"])
    (tmp_path / ".gitignore").write_bytes(
        codecs.BOM_UTF8 + b"*.log\r\n!\r\n\\\n[z-a]\n/\n!/\n# caf\xe9\n!keep.log\nplain/\ncaf\xe9\n"
    )
    (tmp_path / "sub/.rayignore").write_text("*\n!*.py\n")
    fill(tmp_path, ["caf\udce9"])
    assert names(tmp_path) == [*(".gitignore", "b.txt", "dir/keep.log", "plain", "sub/x.py")]


WHITELIST = "*\n!*/\n!*.py"
IGNORED = (
    *({"": WHITELIST}, {"": f"{WHITELIST}\n!/a/"}, {"": "a*\n!b/"}, {"": "a/", "a": "!k.log"}),
    *({"": "*.log\n!a/", "a": "!k.log"}, {"": "*.log", "a": "!*.log", "a/b": "*.log"}),
)


def test_what_is_uploaded_is_what_git_would_keep(tmp_path):  # F30 F59
    """Git is asked, about usual files and about hundreds that are drawn."""
    drawn = random.Random(0)
    parts = ["a", "b", "c", "*", "*", "**", "?", "[a-b]", "*.py", "k.log", "*.log", "a*"]

    def line():
        path = "/".join(drawn.choices(parts, k=drawn.choice([1, 1, 2, 3])))
        return "".join(
            [
                *("!" if drawn.random() < 0.4 else "", "/" if drawn.random() < 0.2 else ""),
                *(path, "/" if drawn.random() < 0.35 else ""),
            ]
        )

    def lines(count):
        return "\n".join(line() for _ in range(count))

    every = [*IGNORED, *({"": lines(3), "a": lines(2)} for _ in range(200))]
    folders = ["", *"abc", *(f"{first}/{last}" for first in "abc" for last in "abc")]
    fill(tmp_path, [f"./{each}/{name}" for each in folders for name in ("d", "k.log", "x.py")])
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for ignored in every:
        for folder, text in ignored.items():
            (tmp_path / folder / ".gitignore").write_text(text)
        kept = subprocess.run(
            [*git, "ls-files", "--others", "--exclude-standard"], capture_output=True, check=True
        )
        assert names(tmp_path, [".git/"]) == sorted(kept.stdout.decode().split()), ignored
        for folder in ignored:
            (tmp_path / folder / ".gitignore").unlink()


def test_what_goes_while_it_is_listed_is_not_there(tmp_path, monkeypatch):  # F59
    """As an editor's temporary file does."""
    fill(tmp_path, ["train.py", "gone/x"])
    listdir = os.listdir

    def listed(path):
        return [*listdir(path), "4913"]

    def removing(path):
        found = listed(path)
        shutil.rmtree(tmp_path / "gone", ignore_errors=True)
        return found

    monkeypatch.setattr(os, "listdir", listed)
    assert names(tmp_path) == ["gone/x", "train.py"]
    monkeypatch.setattr(os, "listdir", removing)
    assert names(tmp_path) == ["train.py"]


def test_a_mode_alone_makes_another_package_and_arrives(tmp_path):  # F59
    folder = tmp_path / "work"
    fill(folder, ["run.sh", "train.py"])
    sent = {}
    for mode in (0o644, 0o755):
        (folder / "run.sh").chmod(mode)
        env, made = package.packages({"working_dir": str(folder), "excludes": []})
        ((name, content),) = made.items()
        assert env == {"working_dir": f"gcs://{name}"}
        assert unpacked(content, tmp_path / f"node{mode}")["run.sh"] == mode
        os.utime(folder / "train.py", (1, mode))  # which does not count as a change
        sent[name] = content
        assert package.packages({"working_dir": str(folder)})[1] == made
    assert len(sent) == 2


def test_modules_may_be_folders_files_and_wheels(tmp_path):  # F60
    fill(tmp_path, ["lib/__init__.py", "one.py"])
    wheel = tmp_path / "thing-1.0-py3-none-any.whl"
    wheel.write_bytes(b"first")
    modules = ["s3://b/x.zip", *(str(tmp_path / name) for name in ("lib", "one.py", wheel.name))]
    env, made = package.packages({"py_modules": modules})
    address, *ours = env["py_modules"]
    assert address == "s3://b/x.zip"
    assert [f"gcs://{name}" for name in made] == ours
    folder, file, _ = made.values()
    assert set(unpacked(folder, tmp_path / "a")) == {"lib/__init__.py"}
    assert set(unpacked(file, tmp_path / "b")) == {"one.py"}
    wheel.write_bytes(b"built again")
    again = package.packages({"py_modules": modules})[0]["py_modules"]
    assert again[:3] == [address, *ours[:2]]
    assert again[3] != ours[2]
    assert again[3].startswith("gcs://thing-1.0-0_")
    assert again[3].endswith("-py3-none-any.whl")
    wheel.rename(tmp_path / "thing.whl")
    with pytest.raises(ClientError, match="is not named like a wheel"):
        package.packages({"py_modules": [str(tmp_path / "thing.whl")]})


def test_a_git_folder_of_two_gigabytes_is_not_sent(tmp_path):  # F30
    fill(tmp_path, ["train.py", ".git/HEAD", "part/.git/HEAD", "part/model.py"])
    for folder in (tmp_path, tmp_path / "part"):
        with (folder / ".git/pack").open("wb") as file:
            file.truncate(2 * 1024 * package.MIB)  # of holes
    found = listing.of_folder(tmp_path, list(NEVER_UPLOADED))
    assert {entry.name for entry in found.files} == {"train.py", "part/model.py"}
    package.check_upload("here", found, [])


def test_a_job_takes_its_own_package_along_and_nothing_of_the_client():
    for script in map(scripts.find, scripts.names()):
        assert script.module is not None
        found = names(script.module, NEVER_UPLOADED)
        assert f"jobs/{script.path.relative_to(scripts.JOBS)}" in found
        below = {name.partition("/")[0] for name in found if "/" in name}
        folders = "data dev_session jobs models report resume search serving store sweep tracking"
        assert below == {*folders.split()}
        assert script.module.name == "trainyard"


def test_a_size_beyond_rays_limit_names_the_ten_largest(tmp_path):  # A40 F30
    for i in range(12):
        with (tmp_path / f"part{i:02d}.bin").open("wb") as file:
            file.truncate((i + 1) * 2 * package.MIB)  # 156 MiB of holes
    with pytest.raises(ClientError) as caught:
        package.check_upload("here", listing.of_folder(tmp_path, []), [])
    message = str(caught.value)
    assert "156.0 MiB, at most 100 MiB" in message
    assert message.index("part11.bin") < message.index("part02.bin")
    assert "part01.bin" not in message


def test_the_limit_is_that_of_the_packed_file(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    entry = source / "x.bin"
    with entry.open("wb") as file:
        file.truncate(1000)
    overhead = len(package.pack(listing.of_folder(source, []))) - 1000
    with entry.open("wb") as file:
        file.truncate(100 * package.MIB - overhead)
    package.check_upload("source", listing.of_folder(source, []), [])
    with entry.open("ab") as file:
        file.write(b"1")
    with pytest.raises(ClientError, match="at most 100 MiB"):
        package.check_upload("source", listing.of_folder(source, []), [])


@pytest.mark.parametrize(
    ("location", "remote"),
    [("s3://b/x.zip", True), ("https://h/x.zip", True), (".", False), ("/a/b", False)],
)
def test_addresses_are_told_from_folders(location, remote):
    assert package.is_remote(location) is remote
