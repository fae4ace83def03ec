"""Encodes a text, one number per character: prepared once per node, then mapped into memory.

shakespeare  nanoGPT's tiny Shakespeare, 1.1 MB; downloaded once per node
python       the reference manual that Python ships, 0.5 MB: needs no network
/PATH        a UTF-8 file at this path on every node
https://…    a UTF-8 file, whose SHA-256 must be given; downloaded once per node

A node keeps train.bin and val.bin (uint16: nine tenths of the text, and the last tenth) and
meta.json (the vocabulary and the lengths) in characters/ of its data folder.
"""

import hashlib
import http.client
import json
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from filelock import Timeout as LockTimeout
from numpy.typing import NDArray
from torch.utils.data import Dataset

from trainyard.data.node_folder import CONNECT_S, DOWNLOAD_DEADLINE_S, node_folder
from trainyard.errors import JobError
from trainyard.store.objects import FolderStore, StorageError

# The text of nanoGPT's shakespeare_char, which has 65 different characters.
SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
TRAINED_ON = 0.9  # of the text, from its beginning
MOST_BYTES = 256 * 2**20  # a text is encoded in memory, at 20 bytes a character
MOST_CHARACTERS = 2**16  # different ones, as train.bin has two bytes for each
SHOWN = 5  # characters named in a message
TRAIN, VALID, META = "train.bin", "val.bin", "meta.json"

Ids = NDArray[np.uint16]


@dataclass(frozen=True)
class Corpus:
    """A prepared text; checkpoints keep a description of it."""

    vocabulary: str  # all characters of the text, sorted; an id is an index into it
    sha256: str  # of the text as it was read
    train: Ids  # ids, mapped from the node's file
    valid: Ids  # the same for the held-out part

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text.

        Raises:
            JobError: it has characters that the vocabulary lacks.
        """
        if lacking := sorted(set(text) - set(self.vocabulary)):
            raise JobError(
                f"the vocabulary of {len(self.vocabulary)} characters lacks {_named(lacking)} of "
                f"{text[:40]!r}: leave them out, or train on a text that has them"
            )
        number = {character: index for index, character in enumerate(self.vocabulary)}
        return [number[character] for character in text]

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        return "".join(self.vocabulary[index] for index in ids)

    def state_dict(self) -> dict[str, Any]:
        """Describes the text for a checkpoint."""
        return {"vocabulary": self.vocabulary, "sha256": self.sha256}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Checks that a resumed run has its own text.

        Raises:
            JobError: this is another text.
        """
        if state_dict["sha256"] == self.sha256:
            return
        lacking = sorted(set(self.vocabulary) - set(state_dict["vocabulary"]))
        new = f", with {_named(lacking)} that its vocabulary lacks" if lacking else ""
        raise JobError(
            f"the run began with the text {state_dict['sha256'][:12]}… (SHA-256), and this node "
            f"has {self.sha256[:12]}…{new}: put the first text back, or take another --name"
        )


class Blocks(Dataset[Any]):
    """All of a text, block after block, without the characters left at its end.

    Items are int64 tensors (block,): ids, and the ids that follow each of them.
    """

    def __init__(self, ids: Ids, block: int) -> None:
        self._ids = ids
        self._block = block

    def __len__(self) -> int:
        return (len(self._ids) - 1) // self._block

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        first = index * self._block
        part = torch.from_numpy(self._ids[first : first + self._block + 1].astype(np.int64))
        return part[:-1], part[1:]


class RandomBatches:
    """A number of batches of blocks from random places of a text, fixed by PyTorch's seed.

    Batches are int64 tensors (batch, block): ids, and the ids that follow each of them.
    """

    def __init__(self, ids: Ids, block: int, batch_size: int, count: int) -> None:
        self._ids = ids
        self._offsets = np.arange(block + 1)
        self._batch_size = batch_size
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        places = len(self._ids) - len(self._offsets) + 1
        for _ in range(self._count):
            first = torch.randint(places, (self._batch_size, 1)).numpy()
            part = torch.from_numpy(self._ids[first + self._offsets].astype(np.int64))
            yield part[:, :-1], part[:, 1:]


def load(name: str, block: int, sha256: str = "", limit: int | None = None) -> Corpus:
    """Loads a text, prepared first if this node has not done so yet.

    Args:
        name: as above.
        block: characters that the model sees at once.
        sha256: of the text, in hexadecimal; "" accepts any text, except from an address.
        limit: the number of characters to take, from the beginning.

    Raises:
        JobError: the text is unavailable, another one, not text, or too short for two blocks.
    """
    folder = node_folder() / "characters"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The workers of a node share the folder: the first one prepares it, others wait.
        with FileLock(folder / "lock", timeout=DOWNLOAD_DEADLINE_S):
            content = _read(name, sha256, folder)
            prepared = folder / f"{_sum(content)}-{limit or 'all'}"
            if not prepared.is_dir():
                _prepare(name, content, limit, prepared)
    except (OSError, LockTimeout, StorageError) as error:
        raise JobError(
            f"the text {name} could not be prepared in {folder} ({error}): check the path and the "
            "free space of this node, or take --text python, which every node has"
        ) from error
    meta = json.loads((prepared / META).read_bytes())
    length, held_out = meta["characters"], meta["held_out"]
    if held_out <= block:
        raise JobError(
            f"{name} has {length} characters, of which {held_out} are held out: "
            f"a block needs {block + 1}; take a longer text, or a greater --max-characters"
        )
    train, valid = (np.memmap(prepared / file, np.uint16, "r") for file in (TRAIN, VALID))
    return Corpus(meta["vocabulary"], _sum(content), train, valid)


def _read(name: str, sha256: str, folder: Path) -> bytes:
    """Return the text's bytes, checked against its sum."""
    if name == "python":
        content = _reference_manual()
    elif name.startswith("/"):
        content = Path(name).read_bytes()
    elif name == "shakespeare":
        address, known = SHAKESPEARE
        content = _download(address, known, folder / f"{known}.txt")
    elif sha256:
        content = _download(name, sha256, folder / f"{sha256}.txt")
    else:
        raise JobError(
            f"{name} needs --text-sha256, which makes all nodes train on the same text: "
            "it is what `curl -sL ADDRESS | sha256sum` prints"
        )
    if len(content) > MOST_BYTES:
        raise JobError(f"{name} has {len(content):,} bytes: take a part of at most {MOST_BYTES:,}")
    if sha256 and _sum(content) != sha256:
        raise _other(name, content, sha256)
    return content


def _reference_manual() -> bytes:
    from pydoc_data.topics import topics  # noqa: PLC0415 - half a megabyte

    texts: dict[str, str] = topics
    return "\n".join(texts[name] for name in sorted(texts)).encode()


def _download(address: str, sha256: str, file: Path) -> bytes:
    if file.is_file():
        content = file.read_bytes()
        if _sum(content) == sha256:
            return content
    try:
        with urllib.request.urlopen(address, timeout=CONNECT_S) as reply:  # noqa: S310 - http(s)
            content = bytes(reply.read(MOST_BYTES + 1))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise JobError(
            f"{address} could not be downloaded ({error}): give this node a way to the internet, "
            f"put the text at {file}, or take --text python, which every node has"
        ) from error
    if _sum(content) != sha256:
        raise _other(address, content, sha256)
    FolderStore(file.parent).write(file.name, content)
    return content


def _other(name: str, content: bytes, sha256: str) -> JobError:
    return JobError(
        f"{name} has the SHA-256 {_sum(content)}, not {sha256}: check the file, "
        "then give its own sum, or another text"
    )


def _prepare(name: str, content: bytes, limit: int | None, prepared: Path) -> None:
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")[:limit]
    except UnicodeDecodeError as error:
        raise JobError(
            f"{name} is not UTF-8 text (byte {error.start}): convert it, e.g. by iconv -t UTF-8"
        ) from None
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    vocabulary, ids = np.unique(points, return_inverse=True)
    if len(vocabulary) > MOST_CHARACTERS:
        raise JobError(
            f"{name} has {len(vocabulary):,} different characters: take a text of at most "
            f"{MOST_CHARACTERS:,}"
        )
    cut = int(len(ids) * TRAINED_ON)
    with tempfile.TemporaryDirectory(prefix=".", dir=prepared.parent) as scratch:
        folder = Path(scratch, prepared.name)  # it appears whole or not at all
        folder.mkdir()
        for file, part in ((TRAIN, ids[:cut]), (VALID, ids[cut:])):
            part.astype(np.uint16).tofile(folder / file)
        meta: dict[str, Any] = {"text": name, "vocabulary": "".join(map(chr, vocabulary))}
        meta |= {"characters": len(ids), "held_out": len(ids) - cut}
        (folder / META).write_text(json.dumps(meta))
        folder.replace(prepared)


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _named(characters: list[str]) -> str:
    more = f" and {len(characters) - SHOWN} more" if len(characters) > SHOWN else ""
    return ", ".join(map(repr, characters[:SHOWN])) + more
