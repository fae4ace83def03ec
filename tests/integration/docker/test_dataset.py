"""The data set's image on a real Docker Engine: a volume that is filled once, or not at all."""

import hashlib
import io
import time
import zipfile
from datetime import datetime

import pytest

pytestmark = pytest.mark.integration

JPEG = b"\xff\xd8\xff\xe0 an image"
FLAT = {
    f"{split}/{number}_0.jpg": JPEG
    for split in ("training", "validation", "evaluation")
    for number in range(11)
}
ARCHIVE = ("--archive", "/etc/trainyard/archive")
DEADLINE_S = 30


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name, content in files.items():
            package.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def fill(containers, dataset_image):
    """Runs the image on a volume to its end; returns its exit status and its output."""

    def run(volume, archive, *arguments):
        return containers.run(
            dataset_image,
            *(*ARCHIVE, *arguments),
            options=["--volume", f"{volume}:/mnt"],
            files={"archive": archive},
        )

    return run


@pytest.fixture
def listing(containers, dataset_image):
    """Runs a command on a volume in another container, as a user looks at it."""

    def run(volume, *command):
        _, output = containers.run(
            dataset_image,
            *command[1:],
            options=["--entrypoint", command[0], "--volume", f"{volume}:/mnt:ro"],
        )
        return output.split()

    return run


def test_a_fresh_volume_is_filled_once(containers, dataset_image, fill, listing):  # D7, D8, D9, D10
    volume = containers.new("volume")
    status, output = fill(volume, zipped(FLAT))
    assert status == 0, output
    assert "training: 11 images in 11 classes" in output
    assert listing(volume, "ls", "/mnt/Food-11") == ["evaluation", "training", "validation"]
    classes = [f"class_{number:02d}" for number in range(11)]
    assert listing(volume, "ls", "/mnt/Food-11/training") == classes
    assert listing(volume, "stat", "--format=%u", "/mnt/Food-11/training/class_03") == ["1000"]
    running = containers.docker("ps", "--quiet", "--filter", f"volume={volume}").stdout
    assert running == ""

    before = listing(volume, "find", "/mnt", "-printf", "%p %T@\n")
    again = containers.start(
        dataset_image,
        *ARCHIVE,
        options=["--volume", f"{volume}:/mnt"],
        files={"archive": zipped(FLAT)},
    )
    assert containers.docker("wait", again).stdout.strip() == "0"
    assert "filled already" in containers.logs(again)
    assert listing(volume, "find", "/mnt", "-printf", "%p %T@\n") == before
    state = containers.inspect(again)["State"]
    started, ended = (
        datetime.fromisoformat(state[key][:26] + "+00:00") for key in ("StartedAt", "FinishedAt")
    )
    assert (ended - started).total_seconds() < 2


def test_a_stand_in_is_drawn_by_the_packages_of_the_image(containers, dataset_image, listing):
    volume = containers.new("volume")
    options = ["--volume", f"{volume}:/mnt"]
    status, output = containers.run(dataset_image, "--generate", options=options)
    assert status == 0, output
    assert "training: 1100 images in 11 classes" in output
    manifest = " ".join(listing(volume, "head", "-c", "60", "/mnt/Food-11/.manifest.json"))
    assert '"source": "generated: ' in manifest


def test_the_archive_comes_from_a_url(containers, dataset_image, listing):  # D8
    archive = zipped(FLAT)
    network, volume = containers.new("network"), containers.new("volume")
    server = containers.start(
        dataset_image,
        *("-m", "http.server", "--directory", "/etc/trainyard", "8000"),
        options=[
            *("--entrypoint", "python3", "--network", network, "--network-alias", "archive"),
        ],
        files={"food.zip": archive},
    )
    ask = "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/', timeout=5)"
    deadline = time.monotonic() + DEADLINE_S
    while containers.exec(server, "python3", "-c", ask, check=False).returncode:
        assert time.monotonic() < deadline, containers.logs(server)
        time.sleep(0.1)
    status, output = containers.run(
        dataset_image,
        *("--url", "http://archive:8000/food.zip"),
        *("--sha256", hashlib.sha256(archive).hexdigest()),
        options=["--network", network, "--volume", f"{volume}:/mnt"],
    )
    assert status == 0, output
    assert len(listing(volume, "find", "/mnt", "-name", "*.jpg")) == 33


def test_killed_in_the_middle_it_starts_again(containers, dataset_image, fill, listing):  # D8
    archive = zipped(FLAT | {f"training/0_{index}.jpg": JPEG for index in range(1, 8000)})
    volume = containers.new("volume")
    name = containers.start(
        dataset_image,
        *ARCHIVE,
        options=["--volume", f"{volume}:/mnt"],
        files={"archive": archive},
    )
    unpacking = "until [ -d /mnt/.filling/Food-11/training ]; do sleep 0.01; done"
    containers.exec(name, "timeout", str(DEADLINE_S), "sh", "-c", unpacking)
    containers.docker("kill", name)
    assert containers.docker("wait", name).stdout.strip() == "137"
    assert listing(volume, "ls", "-A", "/mnt") == [".filling"]
    status, output = fill(volume, archive)
    assert status == 0, output
    assert "removing the leftovers of an interrupted run" in output
    assert listing(volume, "ls", "-A", "/mnt") == ["Food-11"]
    assert len(listing(volume, "find", "/mnt", "-name", "*.jpg")) == 33 + 7999


def test_foreign_content_is_refused(containers, dataset_image, fill, listing):
    volume = containers.new("volume")
    containers.run(
        dataset_image,
        "/mnt/thesis.txt",
        options=["--entrypoint", "touch", "--volume", f"{volume}:/mnt"],
    )
    status, output = fill(volume, zipped(FLAT))
    assert status == 1
    assert output == (
        "error: /mnt holds data of another origin (thesis.txt): name another volume, "
        "or empty this one\n"
    )
    assert listing(volume, "ls", "-A", "/mnt") == ["thesis.txt"]


@pytest.mark.parametrize(
    ("files", "arguments", "message"),
    [
        (FLAT, ["--sha256", "0" * 64], "it is another file, or a damaged one"),
        (FLAT | {"../../etc/cron.d/0_1.jpg": JPEG}, [], "leads out of the archive's folder"),
        (
            {name: content for name, content in FLAT.items() if name != "training/4_0.jpg"},
            [],
            "archive has no images of training/class_04",
        ),
    ],
    ids=["wrong-sha256", "traversal", "missing-class"],
)
def test_a_wrong_archive_leaves_the_volume_empty(
    containers, fill, listing, files, arguments, message
):  # D10
    volume = containers.new("volume")
    status, output = fill(volume, zipped(files), *arguments)
    assert status == 1
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in output
    assert listing(volume, "ls", "-A", "/mnt") == []
