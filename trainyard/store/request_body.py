"""The body of an HTTP request in pieces: each piece has a time limit, the whole has none."""

from collections.abc import Callable, Iterator

PIECE_BYTES = 64 * 1024


class RequestBody:
    """A body that can be sent again; `sent` is called with the bytes of each piece."""

    def __init__(self, content: bytes, sent: Callable[[int], None] | None = None) -> None:
        self._content, self._sent = content, sent

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._content), PIECE_BYTES):
            piece = self._content[start : start + PIECE_BYTES]
            yield piece
            if self._sent is not None:
                self._sent(len(piece))
