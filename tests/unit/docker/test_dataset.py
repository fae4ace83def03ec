"""The program that fills the data volume, on archives made here."""

import hashlib
import importlib.util
import io
import json
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests import web

PROGRAM = Path(__file__).parents[3] / "docker" / "dataset" / "dataset.py"
JPEG = b"\xff\xd8\xff\xe0 an image"
FLAT = {
    f"{split}/{number}_{index}.jpg": JPEG + name.encode()
    for split in ("training", "validation", "evaluation")
    for number in range(11)
    for index, name in enumerate(("first", "second"))
}
DEADLINE_S = 30
BROKEN = 1


@pytest.fixture
def dataset():
    spec = importlib.util.spec_from_file_location("food11", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules["food11"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    before = signal.getsignal(signal.SIGTERM)
    yield module
    signal.signal(signal.SIGTERM, before)
    del sys.modules["food11"]


@pytest.fixture
def volume(tmp_path):
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


@pytest.fixture
def fill(dataset, volume):
    """Fills the volume; returns the exit status."""
    return lambda *source: dataset.main([*map(str, source), "--folder", str(volume)])


@pytest.fixture
def refuse(fill, volume, capsys):
    """Fills the volume in vain, which says why and leaves nothing in it."""

    def refused(message, *source):
        assert fill(*source) == 1
        assert message in capsys.readouterr().out
        assert list(volume.iterdir()) == []

    return refused


@pytest.fixture
def archive(tmp_path):
    return zipped(tmp_path / "food.zip", FLAT)


@pytest.fixture
def served(archive):
    """The archive behind HTTP: `answers` are the statuses to give, then 206 where asked for.

    `BROKEN` is an answer that breaks off in its middle.
    """
    answers: list[int] = []

    def answer(asked):
        body = archive.read_bytes()
        start = int((asked.headers["Range"] or "bytes=0-")[len("bytes=") : -1])
        whole = 200 if not start else 206 if start < len(body) else 416
        status = answers.pop(0) if answers else whole
        sent = body[start:] if whole == 206 and status != 200 else body
        headers = {"Content-Length": str(len(sent)), "Connection": "close"}
        if start:
            shown = "*" if status == 416 else f"{start}-{len(body) - 1}"
            headers["Content-Range"] = f"bytes {shown}/{len(body)}"
        if status == BROKEN:
            return whole, sent[: len(sent) // 2], headers
        return status, sent, headers

    with web.serving(answer) as server:
        yield f"{server.url}/food.zip?key=hidden", answers


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in files.items():
            package.writestr(name, content)
    return path


def tarred(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as package:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))
    return path


def images(volume):
    root = volume / "Food-11"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def sorted_by_class(files):
    return {
        f"{split}/class_{int(name.split('_')[0]):02d}/{name}": content
        for split, name, content in ((*key.split("/"), value) for key, value in files.items())
    }


def test_a_flat_archive_is_sorted_into_classes(fill, volume, archive, capsys):  # D8, D10
    assert fill("--archive", archive) == 0
    assert images(volume) == sorted_by_class(FLAT)
    assert len(images(volume)) == 66
    assert "training: 22 images in 11 classes" in capsys.readouterr().out
    assert sorted(path.name for path in volume.iterdir()) == ["Food-11"]


@pytest.mark.parametrize("prefix", ["", "Food-11/", "./", "data/Food-11/"])
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tars_of_every_kind_and_any_folder_above(fill, volume, tmp_path, prefix, mode):  # D8
    files = {prefix + name: content for name, content in FLAT.items()}
    assert fill("--archive", tarred(tmp_path / "food", files, mode)) == 0
    assert images(volume) == sorted_by_class(FLAT)


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_may_be_long(fill, volume, tmp_path, format_, monkeypatch):
    monkeypatch.setattr(tarfile.TarFile, "format", format_)
    files = {f"{'x' * 120}/{name}": content for name, content in FLAT.items()}
    assert fill("--archive", tarred(tmp_path / "food", files)) == 0
    assert images(volume) == sorted_by_class(FLAT)


def test_class_folders_stay_and_what_is_no_image_is_left_out(fill, volume, tmp_path):  # D10
    classes = sorted_by_class(FLAT)
    other = {
        "README.md": b"words",
        "sample.jpg": JPEG,
        "training/labels.csv": b"0,1",
        "__MACOSX/training/._0_0.jpg": b"not an image",
        "training/.DS_Store": b"",
    }
    files = {f"Food-11/{name}": content for name, content in classes.items()} | other
    assert fill("--archive", zipped(tmp_path / "food.zip", files)) == 0
    assert images(volume) == classes


def test_a_second_run_changes_nothing(fill, volume, archive, capsys):  # D8, D9
    assert fill("--archive", archive) == 0
    root = volume / "Food-11"
    before = {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}
    archive.unlink()  # it is not even opened
    assert fill("--archive", archive) == 0
    assert {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))} == before
    assert "filled already, from food.zip" in capsys.readouterr().out


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_in_the_middle_leaves_nothing_that_looks_finished(
    fill, volume, tmp_path, killer
):  # D8
    many = {f"training/0_{index}.jpg": JPEG for index in range(2, 1500)}
    archive = zipped(tmp_path / "food.zip", FLAT | many)
    run = subprocess.Popen(
        [sys.executable, PROGRAM, "--archive", archive, "--folder", volume],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not any((volume / ".filling").glob("Food-11/*/*/*")) and time.monotonic() < deadline:
            time.sleep(0.002)
        run.send_signal(killer)
        run.wait(DEADLINE_S)
    finally:
        run.kill()
        output, _ = run.communicate()
    assert run.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143}[killer], output
    assert b"Traceback" not in output
    assert not (volume / "Food-11").exists()
    assert (volume / ".filling").exists() == (killer == signal.SIGKILL)
    assert fill("--archive", archive) == 0
    assert len(images(volume)) == 66 + 1498
    assert sorted(path.name for path in volume.iterdir()) == ["Food-11"]


def test_a_stand_in_is_drawn_and_told_apart(fill, volume, archive, capsys, monkeypatch):
    monkeypatch.syspath_prepend(PROGRAM.parent)  # as Python does for a program
    assert fill("--generate") == 0
    assert len(images(volume)) == 1760
    assert "training: 1100 images in 11 classes" in capsys.readouterr().out
    manifest = json.loads((volume / "Food-11" / ".manifest.json").read_text())
    assert manifest["source"].startswith("generated: ")
    assert fill("--generate") == 0
    assert "filled already, from generated: " in capsys.readouterr().out
    # A figure of the one must never be taken for one of the other.
    assert fill("--archive", archive) == 1
    assert "and an archive of Food-11 was asked for: remove it" in capsys.readouterr().out
    assert len(images(volume)) == 1760


def test_food_11_does_not_pass_for_generated_images(fill, volume, archive, capsys):
    assert fill("--archive", archive) == 0
    assert fill("--generate") == 1
    assert "and generated images were asked for: remove it" in capsys.readouterr().out
    assert images(volume)


def test_without_its_packages_nothing_is_drawn_or_left(refuse, monkeypatch):
    monkeypatch.setitem(sys.modules, "generated", None)
    refuse("to generate images install numpy and pillow", "--generate")


@pytest.mark.parametrize("there", ["thesis", "Food-11/training"])
def test_content_of_another_origin_is_refused_and_kept(fill, volume, archive, there, capsys):
    (volume / there).mkdir(parents=True)
    assert fill("--archive", archive) == 1
    top = there.partition("/")[0]
    assert f"holds data of another origin ({top}): name another volume" in capsys.readouterr().out
    assert [path.name for path in volume.iterdir()] == [top]


@pytest.mark.parametrize("change", ["remove", "add", "cut"])
def test_a_changed_volume_is_not_taken_for_finished(fill, volume, archive, change, capsys):
    fill("--archive", archive)
    image = volume / "Food-11" / "training" / "class_03" / "3_0.jpg"
    if change == "remove":
        image.unlink()
    else:
        image.with_name("3_9.jpg" if change == "add" else image.name).write_bytes(JPEG)
    assert fill("--archive", archive) == 1
    assert "was changed since it was filled from food.zip" in capsys.readouterr().out


def test_the_digest_is_checked_when_given(fill, refuse, volume, archive, capsys):
    right, wrong = hashlib.sha256(archive.read_bytes()).hexdigest(), "0" * 64
    arguments = ["--archive", archive, "--sha256"]
    refuse(f"food.zip has sha256 {right}, not {wrong}", *arguments, wrong)
    assert fill(*arguments, right.upper()) == 0
    assert fill(*arguments, right) == 0
    assert fill(*arguments, wrong) == 1
    assert f"was filled from an archive with sha256 {right}, not {wrong}" in capsys.readouterr().out
    manifest = json.loads((volume / "Food-11" / ".manifest.json").read_text())
    assert manifest["sha256"] == right
    assert manifest["images"]["evaluation/class_10"] == 2


@pytest.mark.parametrize(
    "name",
    ["../training/0_9.jpg", "/training/0_9.jpg", "training/../../0_9.jpg", "..\\training\\0_9.jpg"],
)
def test_a_zip_that_leads_out_of_its_folder_is_refused(refuse, tmp_path, name):
    archive = zipped(tmp_path / "food", FLAT | {name: JPEG})
    refuse("leads out of the archive's folder", "--archive", archive)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["food", "volume"]


def test_a_link_in_a_zip_is_refused(refuse, tmp_path):
    package = zipped(tmp_path / "food.zip", FLAT)
    with zipfile.ZipFile(package, "a") as file:
        link = zipfile.ZipInfo("training/0_9.jpg")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(link, "/etc/passwd")
    refuse("'training/0_9.jpg' is a link", "--archive", package)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_bomb_is_stopped_before_it_fills_the_disk(dataset, refuse, tmp_path, pack):
    bomb = FLAT | {"training/0_9.jpg": JPEG + bytes(dataset.MAX_IMAGE_BYTES)}
    archive = pack(tmp_path / "food", bomb)
    assert archive.stat().st_size < 1024**2
    refuse("'training/0_9.jpg' is larger than 64 MiB", "--archive", archive)


@pytest.mark.parametrize("bound", ["MAX_BYTES", "MAX_MEMBERS"])
def test_bytes_and_files_altogether_are_bounded(dataset, refuse, archive, bound, monkeypatch):
    monkeypatch.setattr(dataset, bound, 10)
    refuse("Food-11 does not", "--archive", archive)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("evaluation/7_", "food.zip has no images of evaluation/class_07: Food-11 has 11"),
        ("validation/", "validation/class_04 and 6 more"),
    ],
)
def test_a_missing_class_is_named(refuse, tmp_path, left_out, message):  # D10
    files = {k: v for k, v in FLAT.items() if not k.startswith(left_out)}
    refuse(message, "--archive", zipped(tmp_path / "food.zip", files))


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"training/11_0.jpg": JPEG}, "names no class"),
        ({"training/soup.jpg": JPEG}, "names no class"),
        ({"training/Soup/0.jpg": JPEG}, "names no class"),
        ({"training/0_9.jpg": b"<html>"}, "'training/0_9.jpg' is not a JPEG or PNG image"),
        ({"training/0_9.jpg": b""}, "is not a JPEG or PNG image"),
        ({"training/class_00/0_0.jpg": JPEG}, "has this image twice"),
    ],
)
def test_what_is_not_food_11_is_refused(refuse, tmp_path, added, message):
    refuse(message, "--archive", zipped(tmp_path / "food.zip", FLAT | added))


def test_what_is_no_whole_archive_is_refused(refuse, tmp_path, archive):
    page = tmp_path / "page.zip"
    page.write_bytes(b"<html>quota exceeded</html>")
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(tarred(tmp_path / "whole", FLAT).read_bytes()[:-100])
    flipped = tmp_path / "flipped.zip"
    content = bytearray(zipped(tmp_path / "stored.zip", FLAT).read_bytes())
    content[60] ^= 0xFF
    flipped.write_bytes(content)
    encrypted = tmp_path / "encrypted.zip"
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    encrypted.write_bytes(content)
    misnamed = zipped(tmp_path / "misnamed.zip", {"é": b""})
    misnamed.write_bytes(misnamed.read_bytes().replace("é".encode(), b"\xff\xff"))
    for broken, message in (
        (page, "page.zip: it is neither a zip nor a tar"),
        (cut, "cut.tar.gz is damaged"),
        (flipped, "flipped.zip is damaged"),
        (encrypted, "encrypted.zip: it is encrypted"),
        (misnamed, "misnamed.zip is damaged"),
        (tmp_path / "none.zip", "No such file or directory: mount an archive there"),
    ):
        refuse(message, "--archive", broken)


@pytest.fixture
def at_once(dataset, monkeypatch):
    """Tries again without a pause."""
    monkeypatch.setattr(dataset, "RETRY_SECONDS", 0)


@pytest.mark.usefixtures("at_once")
def test_a_download_is_tried_again(fill, volume, served, capsys):  # D8
    url, answers = served
    answers += [503, BROKEN]
    assert fill("--url", url) == 0
    assert images(volume) == sorted_by_class(FLAT)
    output = capsys.readouterr().out
    assert "503 Service Unavailable; trying again" in output
    assert output.count("trying again") == 2
    assert "from 0 MiB on" in output
    assert "hidden" not in output + (volume / "Food-11" / ".manifest.json").read_text()


@pytest.mark.usefixtures("at_once")
def test_a_download_that_cannot_be_had_says_why(refuse, served):
    url, answers = served
    answers += [404]
    refuse("404 Not Found: check the address", "--url", url)
    answers += [500, 500, 500]
    refuse("500 Internal Server Error: check the address", "--url", url)
    refuse("Connection refused: check the address", "--url", "http://127.0.0.1:1/x.zip")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("then", [[BROKEN, BROKEN, BROKEN, BROKEN], [200], []])
def test_a_broken_download_continues_in_the_next_run(  # D8
    fill, volume, archive, served, capsys, then
):
    url, answers = served
    answers += [BROKEN, 500, 500, 500]
    (volume / ".download-of-another-address").touch()
    assert fill("--url", url) == 1
    assert "the next run continues the download" in capsys.readouterr().out
    (part,) = volume.iterdir()
    assert part.read_bytes() == archive.read_bytes()[: archive.stat().st_size // 2]
    # Each attempt brings bytes; then a server that sends all of it; then one that sends the rest.
    answers += then
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert fill("--url", url, "--sha256", digest) == 0
    assert images(volume) == sorted_by_class(FLAT)
    assert sorted(path.name for path in volume.iterdir()) == ["Food-11"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("whole", "added", "status"),
    [
        (True, b"", 0),  # killed after the last byte
        (True, b"more than the server has", 0),
        (False, b"x" * 99, 1),  # continued, and not the archive: the next run starts afresh
    ],
)
def test_a_whole_download_is_checked_before_it_is_used(  # D8
    fill, volume, archive, served, capsys, whole, added, status
):
    url, _ = served
    part = volume / f".download-{hashlib.sha256(url.encode()).hexdigest()[:16]}"
    part.write_bytes(archive.read_bytes() * whole + added)
    assert fill("--url", url) == status
    assert [path.name for path in volume.iterdir()] == ([] if status else ["Food-11"])
    assert ("is damaged" in capsys.readouterr().out) == (status == 1)


def test_food_11_itself_has_a_known_number_of_images(  # D8
    dataset, fill, refuse, tmp_path, served, archive, capsys, monkeypatch
):
    # As its authors say, 16,643 in all.
    assert [sum(counts) for counts in dataset.COUNTS.values()] == [9866, 3430, 3347]
    monkeypatch.setattr(dataset, "COUNTS", dict.fromkeys(dataset.COUNTS, (2,) * 11))
    zipped(archive, {name: FLAT[name] for name in list(FLAT)[1:]})
    monkeypatch.setattr(dataset, "ADDRESS", served[0])
    refuse("training/class_00 has 1 images, where Food-11 has 2", "--public")
    zipped(archive, FLAT)
    assert fill("--public") == 0
    assert "training: 22 images in 11 classes" in capsys.readouterr().out
    # A volume that is filled already is held to the same.
    assert fill("--public") == 0
    more = zipped(tmp_path / "more.zip", FLAT | {"training/0_2.jpg": JPEG})
    other = ["--archive", str(more), "--folder", str(tmp_path / "other")]
    assert dataset.main(other) == 0
    assert dataset.main([*other, "--public"]) == 1
    assert "class_00 has 3 images, where Food-11 has 2: name another" in capsys.readouterr().out


def test_two_at_once_do_not_mix(dataset, fill, refuse, volume, archive):
    with dataset._sole_user(volume):
        refuse("is being filled by another process", "--archive", archive)
    assert fill("--archive", archive) == 0


def test_a_stacks_folder_in_a_volume_that_stacks_share_is_made(dataset, volume, archive):
    folder = volume / "test" / "food11"
    assert dataset.main(["--archive", str(archive), "--folder", str(folder)]) == 0
    assert (folder / "Food-11").is_dir()


def test_a_volume_that_is_not_there_is_named(dataset, archive, capsys):
    folder = str(archive / "food11")  # below a file
    assert dataset.main(["--archive", str(archive), "--folder", folder]) == 1
    assert f"{folder}: Not a directory: mount a volume that user" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --url --archive --generate --public is required"),
        (["--generate", "--public"], "not allowed with argument --generate"),
        (["--url", "ftp://host/x.zip"], "is not an http or https address"),
        (["--url", "file:///etc/passwd"], "is not an http or https address"),
        (["--url", "https://user:secret@host/x.zip"], "the address holds a password"),
        (["--generate", "--sha256", "a" * 64], "not allowed with argument --generate"),
        (["--archive", "x", "--sha256", "123"], "'123' is not 64 hexadecimal digits"),
    ],
)
def test_wrong_arguments(dataset, arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        dataset.main(arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "secret" not in error
