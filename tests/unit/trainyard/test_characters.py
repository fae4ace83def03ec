"""Texts as ids: vocabulary, files, blocks and batches, and messages about bad texts."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import web
from trainyard.data import characters
from trainyard.data.node_folder import FOLDER_VARIABLE
from trainyard.errors import JobError

TEXT = "Whose woods are thése?\r\n" * 50
READ = TEXT.replace("\r\n", "\n")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def node(tmp_path, monkeypatch) -> Path:
    """The folder of a node's data."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "node"))
    return tmp_path / "node"


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode("utf-8-sig"))  # as Windows writes it
    return path


@pytest.fixture
def address(file) -> Iterator[str]:
    """The address of the text on a server."""
    with web.serving(web.files(file.parent)) as server:
        yield f"{server.url}/{file.name}"


def test_a_text_becomes_two_files_and_a_vocabulary(node, file):  # C15
    corpus = characters.load(str(file), 8)
    assert corpus.vocabulary == "".join(sorted(set(READ)))
    [prepared] = (path for path in (node / "characters").iterdir() if path.is_dir())
    written = [np.fromfile(prepared / name, np.uint16) for name in ("train.bin", "val.bin")]
    assert [len(part) for part in written] == [
        int(len(READ) * 0.9),
        len(READ) - int(len(READ) * 0.9),
    ]
    assert corpus.decode(np.concatenate(written).tolist()) == READ
    assert corpus.decode(corpus.encode("woods")) == "woods"
    assert (corpus.train == written[0]).all()


def test_a_text_is_prepared_once(node, file, monkeypatch):
    first = characters.load(str(file), 8)
    monkeypatch.setattr(characters, "_prepare", lambda *_: pytest.fail("was prepared again"))
    assert characters.load(str(file), 8).vocabulary == first.vocabulary


def test_a_limit_takes_the_beginning(node, file):  # C16 C21
    corpus = characters.load(str(file), 8, limit=100)
    assert (len(corpus.train), len(corpus.valid)) == (90, 10)
    assert corpus.decode([*corpus.train, *corpus.valid]) == READ[:100]
    assert len(characters.load(str(file), 8).train) > 90  # the shortened text is not the whole


def test_every_node_has_a_text_without_a_network(node):
    corpus = characters.load("python", 64)
    assert len(corpus.train) > 300_000
    assert "statement" in corpus.decode(corpus.train[:5000].tolist())


def test_a_text_is_downloaded_once(node, file, address):  # C15
    known = hashlib.sha256(file.read_bytes()).hexdigest()
    first = characters.load(address, 8, known)
    file.unlink()
    assert (
        characters.load(address, 8, known).decode(first.train.tolist()) == READ[: len(first.train)]
    )


def test_shakespeare_is_the_text_of_nanogpt(node, file, address, monkeypatch):  # C14 C15
    assert characters.SHAKESPEARE[0].endswith("/tinyshakespeare/input.txt")
    monkeypatch.setattr(characters, "SHAKESPEARE", (address, characters.SHAKESPEARE[1]))
    with pytest.raises(JobError, match=rf"has the SHA-256 \w+, not {characters.SHAKESPEARE[1]}"):
        characters.load("shakespeare", 8)
    known = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(characters, "SHAKESPEARE", (address, known))
    assert len(characters.load("shakespeare", 8).vocabulary) == len(set(READ))


@pytest.mark.parametrize(
    ("content", "sum_", "message"),
    [
        (b"caf\xe9" * 100, "", r"is not UTF-8 text \(byte 3\): convert it"),
        (
            b"short",
            "",
            r"has 5 characters, of which 1 are held out: a block needs 9; take a longer",
        ),
        (b"", "", "has 0 characters"),
        (b"long enough" * 20, "0" * 64, r"has the SHA-256 \w+, not 0{64}"),
    ],
)
def test_bad_texts_are_one_message(content, sum_, message, node, file):
    file.write_bytes(content)
    with pytest.raises(JobError, match=message) as caught:
        characters.load(str(file), 8, sum_)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_great_and_too_colourful_texts(node, file, monkeypatch):
    monkeypatch.setattr(characters, "MOST_CHARACTERS", 5)
    with pytest.raises(JobError, match="different characters: take a text of at most 5"):
        characters.load(str(file), 8)
    assert not [path for path in (node / "characters").iterdir() if path.is_dir()]
    monkeypatch.setattr(characters, "MOST_BYTES", 100)
    with pytest.raises(JobError, match="bytes: take a part of at most 100"):
        characters.load(str(file), 8)


def test_missing_texts_are_one_message(node, tmp_path, address):
    with pytest.raises(JobError, match=r"nowhere could not be prepared .*take --text python"):
        characters.load(str(tmp_path / "nowhere"), 8)
    with pytest.raises(JobError, match="needs --text-sha256"):
        characters.load(address, 8)
    with pytest.raises(JobError, match=r"404.*give this node a way to the internet"):
        characters.load(f"{address}.gone", 8, "0" * 64)


def test_characters_that_the_vocabulary_lacks_are_named(node, file):
    corpus = characters.load(str(file), 8)
    with pytest.raises(JobError, match=r"lacks 'Z', 'ü' of 'Zürs': leave them out"):
        corpus.encode("Zürs")
    with pytest.raises(JobError, match=r"'0', '1', '2', '3', '4' and 5 more"):
        corpus.encode("0123456789")


def test_a_run_goes_on_with_its_own_text_only(node, file):
    begun = characters.load(str(file), 8).state_dict()
    characters.load(str(file), 8).load_state_dict(begun)
    file.write_text(READ + "Quad")
    with pytest.raises(
        JobError, match=r"with 'Q', 'u' that its vocabulary lacks: put the first text"
    ):
        characters.load(str(file), 8).load_state_dict(begun)
    file.write_text(READ + "woods")
    with pytest.raises(JobError, match=r"this node has \w+…: put the first text back"):
        characters.load(str(file), 8).load_state_dict(begun)


@given(st.integers(2, 200), st.integers(1, 20))
def test_blocks_cover_a_text_once(length, block):
    ids = np.arange(length, dtype=np.uint16)
    blocks = characters.Blocks(ids, block)
    items = [blocks[index] for index in range(len(blocks))]
    seen = [number for first, _ in items for number in first.tolist()]
    assert seen == list(range(len(blocks) * block))
    assert length - 1 - block < len(seen) <= length - 1
    for first, following in items:
        assert (following == first + 1).all()


def test_batches_depend_on_the_seed_and_reach_the_end():
    ids = np.arange(10, dtype=np.uint16)
    batches = characters.RandomBatches(ids, block=8, batch_size=4, count=25)

    def drawn(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        torch.manual_seed(seed)
        return list(batches)

    found = drawn(1)
    assert len(batches) == len(found) == 25
    assert {first.shape for first, _ in found} == {(4, 8)}
    assert {place for first, _ in found for place in first[:, 0].tolist()} == {0, 1}
    assert all((following == first + 1).all() for first, following in found)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(found, drawn(1), strict=True))
    assert not all(torch.equal(a, b) for (a, _), (b, _) in zip(found, drawn(2), strict=True))
