"""The base of our pyarrow file systems: each call is passed on to the store's own file system.

Subclasses answer for some names themselves (trainyard/resume/controller_files.py, search/files.py).
"""

# ruff: noqa: D102, ARG002 - pyarrow documents the methods, and calls them with these arguments

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow
from pyarrow import fs


def _passed_on(name: str) -> Callable[..., Any]:
    """Return a method that calls the method `name` of the store's file system."""

    def call(self: StoreHandler, *paths: str) -> Any:
        return getattr(self._files, name)(*paths)

    return call


class StoreHandler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow's are not typed
    """Handles the calls of a file system in Python; `files` is the store's."""

    def __init__(self, files: fs.FileSystem) -> None:
        self._files = files

    normalize_path = _passed_on("normalize_path")
    delete_dir = _passed_on("delete_dir")
    delete_file = _passed_on("delete_file")
    move = _passed_on("move")
    copy_file = _passed_on("copy_file")

    def get_type_name(self) -> str:
        return str(self._files.type_name)

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        return list(self._files.get_file_info(selector))

    def open_input_stream(self, path: str) -> Any:
        return self._reader(path, self._files.open_input_stream)

    def open_input_file(self, path: str) -> Any:
        return self._reader(path, self._files.open_input_file)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return pyarrow.PythonFile(_Upload(lambda content: self._write(path, content)), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError(f"{path}: nothing in a store is appended to")

    def create_dir(self, path: str, recursive: bool) -> None:
        self._files.create_dir(path, recursive=recursive)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        self._files.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("a store is not emptied")

    def _info(self, path: str) -> fs.FileInfo:
        return self._files.get_file_info(path)

    def _reader(self, path: str, opened: Callable[[str], Any]) -> Any:
        return opened(path)

    def _write(self, path: str, content: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
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
