"""Pictures and texts of a program are files of its run, whatever it takes for one."""

import io
import json

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import trainyard
from tests.waiting import wait_for
from trainyard import shown
from trainyard.client import history
from trainyard.client.pull import records
from trainyard.client.ui import rows
from trainyard.shown import Shown, picture
from trainyard.store.objects import FolderStore
from trainyard.tracking import run_folder

RUN = "mine"
ROW = np.array([[0, 51, 255, 7, 8]], np.uint8)
SHARES = ROW / 255


@pytest.mark.parametrize(
    "made",
    [
        ROW,
        ROW.astype(np.int64),
        SHARES,
        SHARES.tolist(),
        np.stack([SHARES] * 3),
        np.stack([ROW] * 3, 2),
        ROW[..., None],
        torch.tensor(SHARES, requires_grad=True),
        torch.tensor(SHARES, dtype=torch.bfloat16)[None],
        torch.tensor(ROW),
        Image.fromarray(ROW),
        Image.fromarray(ROW).convert("CMYK"),
    ],
)
def test_any_picture_is_one(made):
    found = np.asarray(picture(made)).astype(int)
    assert found.shape == (1, 5, 3)
    assert abs(found[0, :, 0] - ROW[0]).max() <= 1


def test_transparent_figures_nan_and_large_pictures_are_pictures():
    assert picture(np.zeros((2, 2, 4))).mode == "RGBA"
    assert picture(np.array([[np.nan, np.inf, True]])).size == (3, 1)
    assert picture(np.zeros((10, 4000))).size == (1024, 3)
    figure = Figure(figsize=(1, 2), dpi=50)
    figure.add_subplot().plot([1, 2])
    assert picture(figure).size == (50, 100)
    array = np.zeros((2, 2), np.uint8)
    kept = picture(array)
    array[:] = 255  # the program goes on
    assert kept.getpixel((0, 0)) == (0, 0, 0)


@pytest.mark.parametrize(
    "odd", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((0, 5)), np.array([["a"]]), None, object()]
)
def test_what_is_no_picture_is_told_and_ends_nothing(store, capsys, odd):
    trainyard.log_image("odd", odd)
    assert "a picture has numbers of the shape (height, width)" in capsys.readouterr().err


def test_they_are_files_of_the_run_that_are_listed_and_pulled(store):
    trainyard.log(acc=1, step=7)
    trainyard.log_image("samples/a @1", SHARES)
    trainyard.log_text("answers 100%", "one\ntwo", step=8)
    wait_for("the store", lambda: len(run_folder.logged(store, RUN).shown) == 2)
    job = {"job": "j", "started": "2026-01-01T00:00:00+00:00"}
    store.write(f"{RUN}/{run_folder.JOBS}", run_folder.lines([job]))
    run = history.read_run(store, RUN)
    assert [(each["step"], each["name"]) for each in run.shown] == [
        (7, "samples/a @1"),
        (8, "answers 100%"),
    ]
    first, second = (store.read(f"{RUN}/{each['file']}") for each in run.shown)
    assert Image.open(io.BytesIO(first)).size == (5, 1)
    assert second == b"one\ntwo"
    assert all(records._is_record(each["file"]) for each in run.shown)
    assert json.loads(json.dumps(rows.in_detail(run, {}, ())["shown"])) == run.shown
    assert [row["acc"] for row in run.logged] == [1]


def test_many_are_thinned_and_few_names_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(shown, "MOST", 10)
    store = FolderStore(tmp_path)
    mine = Shown(store, "p")
    for step in range(1000):
        mine.add("text", str(step), step)
        if step % 20 == 0:
            mine.store()
    mine.store()
    kept = sorted(int(name[2:10]) for name in store.sizes())
    assert 5 <= len(kept) <= 10
    assert kept == [*range(0, 1000, 128)]
    for number in range(shown.MOST_NAMES - 1):
        mine.add(f"n{number}", "x", 0)
    for odd in ("more", "a" * 300, "\u5b9e" * 100, "a\nb", "", 5):
        with pytest.raises(ValueError, match=r"at most 20 names|names have 1 to 200"):
            mine.add(odd, "x", 0)
    with pytest.raises(ValueError, match="steps begin at 0"):
        mine.add("text", "x", -1)


def test_a_store_that_is_away_makes_no_heap_of_them(tmp_path, monkeypatch):
    mine = Shown(FolderStore(tmp_path), "p")
    for step in range(shown.MOST_WAITING):
        mine.add("text", str(step), step)
    with pytest.raises(ValueError, match="64 pictures wait"):
        mine.add("text", "x", 64)
    monkeypatch.setattr(shown, "LONGEST_TEXT", 3)
    mine.store()
    mine.add("text", "abcdef", 64)
    mine.store()
    assert (tmp_path / "p/00000064-text.txt").read_text() == "abc"
