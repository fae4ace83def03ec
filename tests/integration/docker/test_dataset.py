"""The data set's image on a real Docker Engine: a volume that is filled once, or not at all."""

import io
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
