"""A pyarrow file system in Python over that of the store: calls go to the store, as they are."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow
from pyarrow import fs


class StoreHandler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow's are not typed
    """Handler of a file system; subclasses answer for some names themselves."""

    def __init__(self, plain: fs.FileSystem) -> None:
        """Changes nothing yet.

        Args:
            plain: file system of the store.
        """
        self._plain = plain

    def get_type_name(self) -> str:
        """Return the store's kind."""
        return str(self._plain.type_name)

    def normalize_path(self, path: str) -> str:
        """Return the store's form of a path."""
        return str(self._plain.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Return what is known of each path."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return what is in a folder."""
        return list(self._plain.get_file_info(selector))

    def open_input_stream(self, path: str) -> Any:
        """Return a reader from the beginning."""
        return self._reader(path, self._plain.open_input_stream)

    def open_input_file(self, path: str) -> Any:
        """Return a reader that can seek."""
        return self._reader(path, self._plain.open_input_file)

    def open_output_stream(self, path: str, metadata: Any) -> Any:  # noqa: ARG002 - pyarrow's
        """Return a writer; the file is written when it is closed."""
        return pyarrow.PythonFile(_Upload(lambda content: self._write(path, content)), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        """Refuses."""
        raise NotImplementedError(f"{path}: nothing in a store is appended to")

    def create_dir(self, path: str, recursive: bool) -> None:
        """Makes a folder."""
        self._plain.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        """Removes a folder."""
        self._plain.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        """Empties a folder."""
        self._plain.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        """Refuses."""
        raise NotImplementedError("a store is not emptied")

    def delete_file(self, path: str) -> None:
        """Removes a file."""
        self._plain.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        """Moves a file."""
        self._plain.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        """Copies a file."""
        self._plain.copy_file(src, dest)

    def _info(self, path: str) -> fs.FileInfo:
        return self._plain.get_file_info(path)

    def _reader(self, path: str, plain: Callable[[str], Any]) -> Any:
        return plain(path)

    def _write(self, path: str, content: bytes) -> None:
        with self._plain.open_output_stream(path) as stream:
            stream.write(content)


class _Upload(io.BytesIO):
    """Collects a small file, which is stored when it is closed."""

    def __init__(self, store: Callable[[bytes], None]) -> None:
        super().__init__()
        self._store: Callable[[bytes], None] | None = store

    def close(self) -> None:
        store, self._store = self._store, None
        content = b"" if self.closed else self.getvalue()
        super().close()
        if store is not None:
            store(content)
