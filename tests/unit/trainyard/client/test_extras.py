"""The client alone: its packages are enough for its commands, and the others name an extra."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.client import cli, extras

ROOT = Path(__file__).resolve().parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = re.compile(r"[\w.-]+(?:\[[\w,]+\])?")
# Nodes have these with Ray, or a job asks for them with its runtime environment.
OF_NODES = {"debugpy", "fastapi", "pydevd", "torch_xla", "psutil"}
FRAMEWORKS = {"accelerate", "datasets", "lightgbm", "xgboost"}
# They ask whether they are in one.
OF_CHECKOUT = {("engine", "outputs.py"), ("infra", "health.py")}
TEMPLATE = ROOT / "trainyard/quickstart/project"


def _listed(name: str) -> list[str]:
    text = (ROOT / f"requirements/{name}.in").read_text()
    return [found[0] for line in text.splitlines() if (found := NAME.match(line))]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _closure(names: list[str]) -> set[str]:
    """The distributions that some requirements install, by what is installed here."""
    found: set[str] = set()
    todo = [*names]
    while todo:
        name, _, wanted = todo.pop().partition("[")
        if _plain(name) in found:
            continue
        found.add(_plain(name))
        chosen = wanted.strip("[]").split(",")
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system or Python
        for line in required:
            extra = re.search(r"extra *== *['\"]([\w-]+)", line)
            if (extra is None or extra[1] in chosen) and (other := NAME.match(line)):
                todo.append(other[0])
    return found


def _imported() -> Iterator[tuple[str, Path]]:
    for folder in ("trainyard", "hydra_plugins", "training"):
        for path in (ROOT / folder).rglob("*.py"):
            if TEMPLATE in path.parents:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                yield from ((name.partition(".")[0], path) for name in names)


def test_the_lists_of_the_distribution_are_those_of_the_requirements():
    dynamic = PROJECT["tool"]["setuptools"]["dynamic"]
    assert dynamic["dependencies"] == {"file": ["requirements/client.in"]}
    assert dynamic["optional-dependencies"] == {
        extra: {"file": [f"requirements/{extra}.in"]} for extra in extras.MODULES
    }
    assert PROJECT["project"]["name"] == extras.DISTRIBUTION
    base = (ROOT / "requirements/base.in").read_text()
    assert re.findall(r"^-r (\w+)\.in$", base, re.MULTILINE) == ["client", *extras.MODULES]


def test_all_that_is_imported_is_of_the_client_or_of_an_extra():
    ours = {"trainyard", "training", "hydra_plugins"} | sys.stdlib_module_names
    of_extras = {module for modules in extras.MODULES.values() for module in modules}
    distributions = importlib.metadata.packages_distributions()
    client = _closure(_listed("client"))
    for module, path in _imported():
        if module in ours | of_extras | OF_NODES | FRAMEWORKS:
            continue
        if (module, path.name) in OF_CHECKOUT and path.parent == ROOT / "trainyard/client":
            continue
        found = {_plain(each) for each in distributions.get(module, [])}
        assert found & client, f"{path} imports {module}: of which list in requirements/ is it?"


@pytest.mark.parametrize("extra", extras.MODULES)
def test_an_extra_installs_its_modules_and_the_client_does_not(extra):
    distributions = importlib.metadata.packages_distributions()
    client = _closure(_listed("client"))
    its_own = _closure(_listed(extra))
    for module in extras.MODULES[extra]:
        found = {_plain(each) for each in distributions[module]}
        assert found & its_own, f"{module} is not of requirements/{extra}.in"
        assert not found <= client, f"the client has {module} anyway"


def test_a_module_that_is_missing_is_one_message(monkeypatch, capsys):
    missing = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")

    def fails(**_: object) -> None:
        raise missing

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    said = capsys.readouterr().err
    assert "needs torch, which" in said
    assert "`pip install 'trainyard-ray[jobs]'`" in said
    missing = ModuleNotFoundError("No module named 'of_the_user'", name="of_the_user")
    with pytest.raises(ModuleNotFoundError, match="of_the_user"):
        cli.main()
