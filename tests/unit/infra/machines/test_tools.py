"""The programs that run where one is missing, and the messages to the user."""

from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest

from cluster import services
from infra.machines import go_programs, tools
from infra.machines.go_programs import DEFAULT, MONITORING

STORES = sorted(go_programs.STORES)


@pytest.fixture
def told(monkeypatch) -> list[str]:
    messages: list[str] = []
    for level in ("info", "warn"):
        monkeypatch.setattr(
            pulumi.log, level, lambda text, kind=level: messages.append(f"{kind}: {text}")
        )
    return messages


@pytest.fixture
def data(tmp_path) -> Path:
    return tmp_path / "d"


@pytest.fixture
def find(data, recorded) -> Callable[[str], tools.Tools]:
    """Find the programs inside a program: what is to be built is declared."""

    def inside(setting: str) -> tools.Tools:
        found: list[tools.Tools] = []
        pulumi.runtime.test(lambda: found.append(tools.find(setting, data, services.ALL)))()
        return found[0]

    return inside


def _keep(data: Path, store: str) -> None:
    (data / store / "data" / "ray").mkdir(parents=True)


def test_programs_on_path(bare, put_program, find):
    prometheus = put_program(bare, "prometheus", "exit 0")
    found = find("directory")
    assert found.paths["prometheus"] == str(prometheus)
    assert Path(str(found.paths["ray"])).exists(), "of this environment, whatever PATH says"


@pytest.mark.usefixtures("go")
def test_auto_builds_nothing(find, told, recorded):  # P25
    assert find("auto").store is None
    assert not recorded.of_type(":GoTool")
    assert told == []


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("store", STORES)
def test_a_store_asked_for_and_not_to_be_had_is_an_error(store, find):
    with pytest.raises(pulumi.RunError, match=rf"store is {store}, and no Go 1\.25.* install Go"):
        find(store)


@pytest.mark.usefixtures("bare")
def test_a_folder_never_takes_the_place_of_a_store_with_results(find, data):
    _keep(data, "minio")  # P25
    with pytest.raises(pulumi.RunError, match="store is minio, and no Go"):
        find("auto")


def test_a_go_that_is_too_old_builds_none(bare, put_program, find):
    put_program(bare, "go", "echo go version go1.24.9 linux/amd64")
    with pytest.raises(pulumi.RunError, match="no Go 1"):
        find(DEFAULT)


def test_a_store_on_path_is_not_taken(bare, put_program, find):  # F41: it has no guard
    for store in STORES:
        put_program(bare, store, "exit 0")
    with pytest.raises(pulumi.RunError, match="no Go 1"):
        find(DEFAULT)


@pytest.mark.usefixtures("bare")
def test_what_was_built_needs_no_go(find):
    path = go_programs.STORES["minio"].path
    path.parent.mkdir(parents=True)
    path.touch()
    assert find("minio").store.name == "minio"


@pytest.mark.usefixtures("go")
def test_auto_goes_on_with_the_store_that_has_the_results(find, data):
    (data / "storage" / "run").mkdir(parents=True)
    assert find("auto").store is None
    _keep(data, "minio")
    assert find("auto").store.name == "minio"


@pytest.mark.usefixtures("go")
@pytest.mark.parametrize("chosen", ["versitygw", "directory"])
def test_results_of_another_store_are_not_passed_over_in_silence(find, data, told, chosen):
    _keep(data, "minio")
    _keep(data, chosen)
    find(chosen)
    (said,) = told
    assert said == (
        f"warn: {data}/minio/data holds results that this stack's store, {chosen!r}, does not "
        "show: they stay there, and are back with objectStore = 'minio' and without storeFrom"
    )


@pytest.mark.usefixtures("go")
def test_results_in_a_folder_are_not_passed_over_in_silence(find, data, told):
    (data / "storage" / "run").mkdir(parents=True)
    find("versitygw")
    assert told[0].startswith(f"warn: {data}/storage holds results that this stack's store, 'versi")


@pytest.mark.usefixtures("bare")
def test_without_prometheus_there_is_no_monitoring_and_no_warning_each_time(find, told):
    assert "prometheus" not in find("directory").paths
    assert told == []  # `train info` says it


def _built(name: str, version: str = "") -> Path:
    """A program as `make monitoring` leaves it, of this version or another."""
    program = MONITORING[name]
    path = program.path
    if version:
        path = path.with_name(path.name.replace(program.version, version))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.with_name(f"{path.name}{go_programs.NOTE}").touch()
    return path


def test_what_make_monitoring_built_is_used_and_not_an_older_one_on_path(
    bare, put_program, find, recorded
):
    for name in ("prometheus", "prometheus-alertmanager"):
        put_program(bare, name, "exit 0")
    path = _built("prometheus")
    found = find("directory").paths
    # The resource checks its digest, and has it built again where that is another.
    (built,) = recorded.of_type(":GoTool").values()
    assert built.inputs["path"] == str(path)
    assert found["alertmanager"] == str(bare / "prometheus-alertmanager")


def test_what_was_built_for_an_earlier_version_is_built_again(bare, put_program, find, recorded):
    _built("prometheus", version="v0.300.1")
    prometheus = put_program(bare, "prometheus", "exit 0")
    assert find("directory").paths["prometheus"] == str(prometheus)  # no Go
    put_program(bare, "go", "echo go version go1.26.8 linux/amd64")
    find("directory")
    (built,) = recorded.of_type(":GoTool").values()
    assert built.inputs["version"] == MONITORING["prometheus"].version


@pytest.mark.usefixtures("go")
@pytest.mark.parametrize("store", STORES)
def test_go_builds_the_store_as_a_resource(store, find, bare, recorded):
    find(store)
    (built,) = recorded.of_type(":GoTool").values()
    assert built.inputs["version"] == go_programs.STORES[store].version
    assert built.inputs["path"].startswith(str(bare.parent / "cache"))
