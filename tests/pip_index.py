"""A package index of a test's own, and a project whose Pipfile names it."""

import functools
import http.server
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PIPFILE = """
[[source]]
url = "{url}"
verify_ssl = false
name = "own"

[packages]
box-one = {{version = "==1.0", extras = ["more"], index = "own"}}
box-nowhere = {{version = "*", sys_platform = "== 'win32'"}}
"""
MINE = """
mine = {path = "libs/mine", editable = true}
"""
# Without packages of an index, which the box's own does not have.
BACKEND = """
import zipfile


def build_wheel(folder, *_):
    texts = {
        "METADATA": "Metadata-Version: 2.1\\nName: mine\\nVersion: 1\\n",
        "WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any\\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(f"{folder}/mine-1-py3-none-any.whl", "w") as wheel:
        wheel.write("mine.py")
        for name, text in texts.items():
            wheel.writestr(f"mine-1.dist-info/{name}", text)
    return "mine-1-py3-none-any.whl"
"""


@contextmanager
def served(folder: Path, host: str) -> Iterator[str]:
    """Serves an index with two packages; yields its address."""
    _wheel(folder, "box_one", "Provides-Extra: more", 'Requires-Dist: box-more; extra == "more"')
    _wheel(folder, "box_more")
    files = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer((host, 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{host}:{server.server_port}/simple"
        server.shutdown()


def write_project(project: Path, index: str) -> None:
    """Writes a Pipfile for an index, and the package of the project that it names."""
    (project / "Pipfile").write_text(PIPFILE.format(url=index) + MINE)
    mine = project / "libs/mine"
    mine.mkdir(parents=True)
    (mine / "mine.py").write_text("WHAT = 'mine'\n")
    (mine / "backend.py").write_text(BACKEND)
    (mine / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )


def _wheel(folder: Path, name: str, *metadata: str) -> None:
    """Puts a wheel into an index: a module whose WHAT is its name."""
    place = folder / "simple" / name.replace("_", "-")
    place.mkdir(parents=True)
    info = f"{name}-1.0.dist-info"
    text = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *metadata, ""])
    with zipfile.ZipFile(place / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"WHAT = {name!r}\n")
        archive.writestr(f"{info}/METADATA", text)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
