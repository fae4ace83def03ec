"""The data set in a lab: a volume that one container fills, and every node reads."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from infra.machines import docker_engine

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

BASE = "trainyard-test/base:latest"
SPLITS = ("evaluation", "training", "validation")
CLASSES = 11
SEEN = """\
import json, os
from pathlib import Path
folder = Path(os.environ["FOOD11_DATA_DIR"])
refused = []
for each in (folder, Path("/data/mine")):
    try:
        (each / "x").touch()
    except OSError as error:
        refused.append(error.strerror)
print(json.dumps([refused, len(list(folder.glob("*/*/*.jpg"))), os.listdir("/data/mine")]))
"""


@pytest.fixture
def archive(tmp_path) -> Path:
    """Food-11 with one image in each class of each split."""
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "JPEG")
    tmp_path.chmod(0o755)
    path = tmp_path / "food.zip"
    with zipfile.ZipFile(path, "w") as package:
        for split in SPLITS:
            for number in range(CLASSES):
                package.writestr(f"{split}/{number}_0.jpg", buffer.getvalue())
    return path


def _run(volume: str, *command: str) -> list[str]:
    """The output of a user's command on the volume."""
    said: bytes = docker_engine.client().containers.run(
        BASE, list(command), volumes={volume: {"bind": "/mnt"}}, remove=True
    )
    return said.decode().split()


def test_a_volume_is_filled_once_and_read_by_every_node(volume, make_small_lab, archive):
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = {"archive": str(archive), "sha256": digest, "volume": volume}
    mine = {"name": "mine", "path": str(archive.parent), "mount": "/data/mine"}
    lab = make_small_lab(dataset=source, volumes=[mine])
    done = lab.stack.engine("up", "--yes")
    said = done.stdout + done.stderr
    for split in SPLITS:  # D8
        assert f"dataset: {split}: {CLASSES} images in {CLASSES} classes" in said
    lab.stack.engine("up", "--yes", "--expect-no-changes")
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")
    assert lab.container("dataset").status == "exited"  # D9
    assert _run(volume, "ls", "/mnt/Food-11") == list(SPLITS)  # D7 D10
    for node in ("ray-head", "ray-worker-0"):
        code, output = lab.container(node).exec_run(["python", "-c", SEEN])
        assert code == 0, output
        refused = ["Read-only file system"] * 2
        assert json.loads(output) == [refused, len(SPLITS) * CLASSES, [archive.name]]

    done = lab.stack.engine("destroy", "--yes")
    assert lab.containers() == {}  # D56
    assert archive.is_file()
    (kept,) = [line for line in (done.stdout + done.stderr).splitlines() if "kept: " in line]
    assert volume in kept
    # The next stack takes it over, as tests of processes show.
    assert set(lab.volumes()) <= set(kept.split())


def test_nobody_works_on_a_cluster_without_its_data(volume, make_small_lab, archive):
    """tests/unit/docker/test_dataset.py has all faults of archives and volumes."""
    lab = make_small_lab(dataset={"archive": str(archive), "sha256": "0" * 64, "volume": volume})
    text = lab.refused()
    assert "dataset ended (exit code 1)" in text
    assert f"volume {volume} is its /mnt" in text
    assert _run(volume, "ls", "-A", "/mnt") == []
    assert "ray-head" not in lab.containers()
    _run(volume, "touch", "/mnt/thesis.txt")
    lab.change(dataset={"archive": str(archive), "volume": volume})
    assert "(thesis.txt): name another volume, or empty this one" in lab.refused()
    # Files from root's container belong to root, and so does the volume's own folder.
    _run(volume, "rm", "/mnt/thesis.txt")
    assert "the volume has to be writable for user 1000" in lab.refused()
    _run(volume, "chown", "1000", "/mnt")
    assert "dataset: /mnt/Food-11 is ready" in lab.stack.engine("up", "--yes").stderr
    lab.stack.engine("destroy", "--yes")
