"""The house rules: imports go one way, the contract is one, nothing foreign is committed."""

import ast
import os
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from infra import places
from infra.machines import sources
from tests import ran
from trainyard.access import variables

ROOT = Path(__file__).parents[2]
# The wheel imports nothing from the rest of the checkout. On nodes, jobs have the library without
# its three folders for the user's machine.
CHECKOUT_ONLY = {"infra", "cluster", "node", "scripts", "engine", "training", "bench", "tests"}
HERE_ONLY = {"trainyard.access", "trainyard.client", "trainyard.quickstart"}
FORBIDDEN = {
    "trainyard": CHECKOUT_ONLY | HERE_ONLY | {"pulumi", "hydra_plugins"},
    "trainyard/access": CHECKOUT_ONLY | {"pulumi", "trainyard.client", "trainyard.quickstart"},
    "trainyard/client": CHECKOUT_ONLY | {"pulumi", "hydra_plugins", "hydra"},
    "trainyard/quickstart": CHECKOUT_ONLY | {"pulumi"},
    "hydra_plugins": CHECKOUT_ONLY | {"pulumi"},
    "training": CHECKOUT_ONLY | HERE_ONLY | {"pulumi", "hydra_plugins"},
    "cluster": {"infra", "engine", "trainyard", "scripts"},
    "node": CHECKOUT_ONLY - {"node"} | {"trainyard", "pulumi"},
    "engine": {"infra", "cluster", "node", "scripts", "trainyard"},
    "infra": {"engine", "scripts", "trainyard"},
    "infra/operate/policy": {"infra", "cluster", "engine", "trainyard", "pulumi"},
}
# The only parts of the library that these four use.
ACCESS = {"trainyard.access", "trainyard.failpoints"}
# These modules are with two of a node, wherever they run (cluster/replica.py).
SHIPPED = {"trainyard.store"}
SHIPPED_WITH = [ROOT / "node/replicate.py", ROOT / "node/idle_watch.py"]
# Not part of the program: like the engine, they look at states, plans and real resources. The
# client, in a checkout, reads a state in its own process.
ASK_THE_ENGINE = {
    ROOT / "infra/operate/drift/look.py": "engine",
    ROOT / "infra/operate/health.py": "engine",
    ROOT / "infra/operate/review/planned.py": "engine",
    ROOT / "trainyard/client/health.py": "infra.operate",
    ROOT / "trainyard/client/outputs.py": "engine",
}
# Names of Go's modules have a host's form: golang.org/x/sys.
PACKAGE_INDEXES = re.compile(
    r"(pypi|pythonhosted|npmjs|golang(?!\.org/x/)|crates|maven|debian)[\w.-]*\.(org|io|com|net)"
)
GO_MODULES = {"go.mod", "go.sum"}
# Nothing is started in these folders and they have no scripts: their modules have full names only.
ONLY_IN_A_PACKAGE = {"infra/places/containers", "node", "engine", "trainyard"}
# One catches every error; the other's request runs on the head, and its result is reported.
CATCH_ALL = {"idle_watch.py", "scale.py"}
MACHINE_PATHS = re.compile(r"(?<![\w.~$}])/(root|work|home/\w+)/")


def _tracked():
    done = ran.run(["git", "ls-files"], cwd=ROOT)
    if done.returncode != 0:
        pytest.skip("no git checkout")
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def _imported(path, *, typed=True):
    """Modules that a module imports, also those for the type checker only if `typed`."""
    tree = ast.parse(path.read_text())
    if not typed:
        guard = "if TYPE_CHECKING:"
        tree.body = [each for each in tree.body if not ast.unparse(each).startswith(guard)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_of(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_imports_go_one_way(package):
    inner = [ROOT / other for other in FORBIDDEN if other.startswith(f"{package}/")]
    files = [
        path
        for path in (ROOT / package).rglob("*.py")
        if not any(path.is_relative_to(each) for each in inner)
    ]
    assert files
    for path in files:
        for name in _imported(path):
            if path in ASK_THE_ENGINE and _is_of(name, {ASK_THE_ENGINE[path]}):
                continue
            if _is_of(name, ACCESS) and not ACCESS & FORBIDDEN[package]:
                continue
            if path in SHIPPED_WITH and _is_of(name, SHIPPED):
                continue
            assert not _is_of(name, FORBIDDEN[package]), (path, name)


# Kubernetes has settings and a command of its own.
OF_PLACES = {
    "infra.places.kubernetes": (
        *("infra.places.kubernetes", "infra.settings.kubernetes", "infra.operate.manifests"),
    ),
}
NAMING_PLACES = {
    "infra/places/__init__.py": "the list",
    "infra/settings/config.py": "all settings are in one model",
    "infra/places/docker_stack.py": "containers are on this machine and on those of other places",
    "infra/operate/dashboard.py": "outputs have two forms of connection, which the client has too",
}


def _of_place(package):
    """Paths of a place's modules, by name."""
    modules = OF_PLACES.get(package, (package,))
    paths = (ROOT / "infra").rglob("*.py")
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return {name: path for name, path in named.items() if _is_of(name, modules)}


def _said(path):
    """Attributes, and texts that are not docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = (node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body)
    docstrings = {node.value for node in bodies if isinstance(node, ast.Expr)}
    for node in {*ast.walk(tree)} - docstrings:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_only_the_list_of_places_names_one():
    paths = {name: path for each in places.PACKAGES for name, path in _of_place(each).items()}
    text = "".join(path.read_text() for path in paths.values())
    types = {"container", *re.findall(r'\bmodule="(\w+)"', text)}
    assert types == {"container", "docker", "kubernetes", "lambda"}
    # Hosts are also any other machines.
    named = {each.setting for each in sources.SOURCES} | {each.api_key for each in sources.CLOUDS}
    settings = named - {"hosts"} | {"kubernetes", "KUBERNETES"}
    words = re.compile(rf"\b({'|'.join(settings)})\b|\b({'|'.join(types)})[\w/]*:[A-Z]")
    naming = {
        path.relative_to(ROOT).as_posix()
        for path in {*(ROOT / "infra").rglob("*.py")} - {*paths.values()}
        if any(map(words.search, _said(path))) or any(name in paths for name in _imported(path))
    }
    assert naming == {*NAMING_PLACES}


def test_a_place_imports_no_other_and_only_its_module_place_loads_the_settings():
    for package in places.PACKAGES:
        mine = _of_place(package)
        others = {name for each in places.PACKAGES for name in _of_place(each)} - mine.keys()
        for name, path in mine.items():
            assert not {*_imported(path)} & others, name
            loaded = {*_imported(path, typed=False)}
            assert name == f"{package}.place" or "infra.settings.config" not in loaded, name


def _imports(folders):
    """Modules that each module imports, also inside functions and for the type checker only."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = {_module(path): path for path in paths}
    graph = {}
    for name, path in names.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & names.keys()
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= inner & names.keys() or {node.module} & names.keys()
    return graph


def _module(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _circle(graph):
    """The modules of one circle in their order, none if there is no circle."""
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other():
    graph = _imports(
        ["cluster", "engine", "hydra_plugins", "infra", "node", "scripts", "trainyard", "training"]
    )
    assert {"cluster.services", "infra.settings.config"} <= graph["infra.places.target"]
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"a", "b"}})
    assert _circle(graph) == []


def test_a_workflow_begins_with_python_alone():
    """The package infra.operate.gitops runs before `make setup`."""
    names = {
        name for path in (ROOT / "infra/operate/gitops").glob("*.py") for name in _imported(path)
    }
    theirs = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in theirs if not _is_of(name, {"infra.operate.gitops", *ACCESS})} == set()
    # Also with its imports from access.
    command = [sys.executable, "-S", "-m", "infra.operate.gitops", "--help"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def _named_like_other_modules(root, folders):
    """Paths below some folders that hide a module of Python or of an installed package.

    A working folder, and the folder of a script, come first in sys.path: the CLI's host of dynamic
    providers works in infra/, `python -m` in the checkout, jobs in training/ and in their own
    folder. A folder without __init__.py hides nothing: a package found later takes precedence.
    """
    installed = {
        name
        for name, distributions in packages_distributions().items()
        if not {*distributions} <= {"trainyard-ray", "trainyard"}  # its former name
    }
    taken = {*sys.stdlib_module_names, *installed}
    for path in (found for folder in folders for found in (root / folder).rglob("*.py")):
        module = path.parent if path.name == "__init__.py" else path
        folder = module.parent.relative_to(root).as_posix()
        if module.stem in taken and folder not in ONLY_IN_A_PACKAGE:
            yield module.relative_to(root).as_posix()


def test_no_module_hides_one_of_python_or_of_an_installed_package(tmp_path):
    folders = ["trainyard", "training", "hydra_plugins", "infra", "cluster", "engine", "bench"]
    folders += ["docker", "node", "scripts"]
    assert list(_named_like_other_modules(ROOT, folders)) == []
    for name in ("infra/resource.py", "training/yaml.py", "cluster/ray/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert sorted(_named_like_other_modules(tmp_path, folders)) == [
        "cluster/ray",
        "infra/resource.py",
        "training/yaml.py",
    ]


def test_jobs_read_the_variables_that_nodes_get():
    """The library is uploaded without access/, so it names them itself."""
    texts = "".join(path.read_text() for path in (ROOT / "trainyard").glob("**/*.py"))
    names = {value for name, value in vars(variables).items() if name.isupper()}
    assert names
    assert {name for name in names if f' = "{name}"' not in texts} == set()


def test_the_readme_says_what_each_of_at_most_fourteen_folders_is_for():
    roots = {path.relative_to(ROOT).parts[0] for path in _tracked() if path.parent != ROOT}
    folders = {f"`{name}/`" for name in roots if not name.startswith(".")}
    assert len(folders) <= 14
    readme = (ROOT / "README.md").read_text()
    assert {folder for folder in folders if folder not in readme} == set()


def test_the_ways_of_the_architecture_lead_through_files_of_today():
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/ARCHITECTURE.md").read_text())
    files = [path.as_posix() for path in _tracked()]
    assert named
    assert [name for name in named if not any(each.endswith(f"/{name}") for each in files)] == []


LOCKS = ["requirements/setup", "requirements/base", "requirements/dev", "requirements/site"]
LOCKS += ["infra/operate/policy/requirements"]


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_pinned_with_hashes_and_names_no_index(name):
    lines = (ROOT / f"{name}.txt").read_text()
    pins = re.findall(r"^[\w.\[\],-]+==\S+", lines, re.MULTILINE)
    assert pins
    assert lines.count("--hash=sha256:") >= len(pins)
    assert "index-url" not in lines
    assert not PACKAGE_INDEXES.search(lines)


def test_nothing_committed_names_a_package_index_or_this_machine():
    for path in _tracked():
        if path.suffix in {".svg", ".png"} or path == Path(__file__):
            continue
        text = path.read_text(errors="replace")
        if path.name not in GO_MODULES:
            assert not PACKAGE_INDEXES.search(text), path
        assert not MACHINE_PATHS.search(text), path


def test_an_answer_that_is_not_http_is_no_traceback():  # F39
    """`urllib` raises an error for it that is not an OSError."""
    texts = {path: path.read_text() for path in _tracked() if path.suffix == ".py"}
    for path in [*texts]:
        if path.relative_to(ROOT).parts[0] in ("tests", "bench") or path.name in CATCH_ALL:
            del texts[path]
    asking = [path for path, text in texts.items() if re.search(r"urlopen\(|build_opener\(", text)]
    assert len(asking) > 5
    assert [path for path in asking if "HTTPException" not in texts[path]] == []


def test_abbreviated_options_are_refused():
    """A new option could give one another meaning. For jobs, options.parse sees to it."""
    made = ("ArgumentParser", "_Parser", "add_parser")
    folders = ("engine", "infra", "node", "scripts", "bench", "trainyard")
    for path in (path for each in folders for path in _of(each)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(made):
                given = {each.arg: ast.unparse(each.value) for each in node.keywords}
                assert given.get("allow_abbrev") == "False", f"{path}:{node.lineno}"


def _of(package):
    """The modules of a package, without jobs and a project's template."""
    apart = {"jobs", "project"}
    return (path for path in (ROOT / package).rglob("*.py") if not apart & {*path.parts})


def test_help_of_every_command_line_works_without_docstrings():  # F76
    environment = os.environ | {"PYTHONOPTIMIZE": "2"}
    for command in (
        ["-m", "engine", "--help"],
        ["-m", "engine", "up", "--help"],
        ["-m", "trainyard.client", "--help"],
        ["-m", "bench", "--help"],
        ["-m", "infra.operate.reap", "--help"],
        ["-m", "infra.operate.drift", "--help"],
        ["-m", "infra.operate.review", "--help"],
        ["-m", "infra.operate.gitops", "--help"],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, check=False, capture_output=True, env=environment
        )
        assert done.returncode == 0, done.stderr
