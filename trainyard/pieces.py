"""A body of HTTP that is sent in pieces: each has its own time limit, the whole has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator

PIECE_BYTES = 64 * 1024


class Pieces:
    """A body that can be sent again."""

    def __init__(self, content: bytes, sent: Callable[[int], None] | None = None) -> None:
        """Keeps the content.

        Args:
            content: the whole body.
            sent: is called with the bytes of each piece.
        """
        self._content, self._sent = content, sent

    def __iter__(self) -> Iterator[bytes]:
        """Yields the pieces, in order."""
        for start in range(0, len(self._content), PIECE_BYTES):
            piece = self._content[start : start + PIECE_BYTES]
            yield piece
            if self._sent is not None:
                self._sent(len(piece))
