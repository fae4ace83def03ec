"""Which long tests a landing runs, and what the ledger remembers."""

import json
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import landings, ran
from tests.landings import LONG, OLDEST, PROOFS, Ledger, Run

ROOT = Path(__file__).parents[2]
HEAD = "f" * 40


def ledger(**runs: int) -> Ledger:
    """All long files ran at landing 20, except some: of `ui=3` test_ui.py."""
    found = {file: Run(20, HEAD, 10.0) for file in LONG}
    for name, landing in runs.items():
        (file,) = (each for each in LONG if each.endswith(f"test_{name}.py"))
        found[file] = Run(landing, HEAD, 10.0)
    return Ledger(20, found)


def test_each_name_is_of_a_test_of_today():
    for file in LONG:
        assert (ROOT / landings.FOLDER / file).is_file()
    for file, test in PROOFS.items():
        assert f"def {test}(" in (ROOT / landings.FOLDER / file).read_text()
        assert file in LONG
    folders = ["trainyard", "infra", "cluster", "node", "engine", "training", "docker", "docs"]
    paths = [
        path for name in (*folders, ".github", "tests/fakes") for path in (ROOT / name).rglob("*")
    ]
    tree = [path.relative_to(ROOT).as_posix() for path in paths]
    for words, files in landings.TOUCHES:
        assert [path for path in tree if re.search(words, path)], words
        assert [file for file in LONG if re.search(files, file)], files


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("infra/places/kubernetes/manifests.py", "infra/kubernetes/test_stack.py"),
        ("tests/fakes/kubernetes/node.py", "infra/kubernetes/test_stack.py"),
        ("tests/integration/infra/docker/conftest.py", "infra/docker/test_lab.py"),
        ("tests/integration/training/test_ui.py", "training/test_ui.py"),
        ("docs/poc.md", "infra/test_pages.py"),
        ("node/ending.py", "infra/lambda_cloud/test_stack.py"),
    ],
)
def test_a_change_touches_the_proofs_of_its_area(changed, touched):
    assert landings.touched(touched, [changed])
    for other in ("tests/integration/training/test_memory.py", "tests/unit/infra/test_ssh.py"):
        assert not landings.touched(touched, [other])


def test_what_is_touched_runs_and_the_rest_takes_turns_by_age(monkeypatch):
    monkeypatch.setitem(landings.ROOM, "by turn", landings.BASE + 40.0)
    before, ui = ledger(drill=16, ui=15, serve=18), "training/test_ui.py"
    whole, left = landings.choose(before, HEAD, lambda _: ["trainyard/client/ui/page.py"])
    assert list(whole.items())[:3] == [
        (ui, "touched"),
        ("infra/test_drill.py", "by turn"),
        ("training/test_serve.py", "by turn"),
    ]
    assert len(whole) == 4
    assert whole.keys() | left.keys() == LONG.keys()
    monkeypatch.setitem(landings.ROOM, "touched", landings.BASE + 5.0)
    whole, left = landings.choose(before, HEAD, lambda _: ["trainyard/client/ui/page.py"])
    assert left[ui] == "touched"
    (line,) = (each for each in landings.table(before, whole, left) if each.endswith(ui))
    assert line.startswith("not run, no room")


def test_a_slow_machine_has_room_for_fewer():
    def seconds(slow: float) -> float:
        whole, _ = landings.choose(Ledger(0, {}), HEAD, lambda _: [], slow)
        return sum(LONG[file] for file in whole)

    room = landings.ROOM["by turn"]
    assert seconds(2.0) <= room / 2 - landings.BASE < seconds(1.0)
    assert seconds(3.0) == 0


def test_it_is_measured_before_the_choice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(landings, "STARTS", 1)
    monkeypatch.setattr(landings, "_changed", lambda _: [])

    def chosen(start: float) -> dict[str, object]:
        monkeypatch.setattr(landings, "START_S", start)
        assert landings.main(["choose", str(tmp_path / "landings.json"), "900"]) == 0
        return json.loads(landings.CHOSEN.read_text())

    fast, slow = chosen(1e9), chosen(1e-9)
    assert (fast["slow"], fast["until"], slow["whole"]) == (1, 900, {})
    assert fast["whole"]


def test_nothing_waits_for_eight_landings(monkeypatch):
    monkeypatch.setitem(landings.ROOM, "by turn", 0.0)
    at = 21 - OLDEST
    whole, _ = landings.choose(ledger(drill=at + 1, ui=at + 2), HEAD, lambda _: [])
    assert whole == {"infra/test_drill.py": "overdue"}
    later = landings.record(ledger(drill=at, ui=at + 1), HEAD, [], {})
    (line,) = landings.overdue(later)
    told = f"infra/test_drill.py has not run for 8 landings, since {HEAD[:10]}: see why it is"
    assert line == f"{landings.FOLDER}{told} skipped"
    assert landings.overdue(landings.record(later, HEAD, ["infra/test_drill.py"], {})) != []
    assert "test_drill" not in str(landings.overdue(ledger(drill=20)))


def test_what_is_skipped_whole_had_its_turn_but_did_not_run(monkeypatch):
    monkeypatch.setitem(landings.ROOM, "by turn", landings.BASE + 100.0)
    drill, ui = "infra/test_drill.py", "training/test_ui.py"
    before = ledger(drill=17)
    del before.runs[ui]
    whole, _ = landings.choose(before, HEAD, lambda _: [])
    assert [*whole][:2] == [ui, drill]
    later = landings.record(before, HEAD, [], {}, [drill, ui])
    assert later.runs[drill] == Run(17, HEAD, 10.0, skipped=21)
    whole, left = landings.choose(later, HEAD, lambda _: [])
    assert not whole.keys() & {ui, drill}  # others have their turn
    (line,) = (each for each in landings.table(later, whole, left) if each.endswith(ui))
    assert "skipped here, landing 21 " in line
    much_later = landings.record(Ledger(24, later.runs), HEAD, [], {}, [drill, ui])
    (line,) = landings.overdue(much_later)
    assert f"{drill} has not run for 8 landings" in line
    whole, _ = landings.choose(much_later, HEAD, lambda _: [])
    assert next(iter(whole.items())) == (drill, "overdue")
    assert ui not in whole


def test_a_proof_passes_or_its_skip_is_told():
    tests = [f"{landings.FOLDER}{file}::{test}" for file, test in PROOFS.items()]
    passed = {f"{test}[1]" for test in tests}
    assert landings.unproven(passed, {}) == ([], [])
    passed.remove(f"{tests[0]}[1]")
    told = f"PROOF NOT RUN: {tests[0]} neither passed nor was skipped"
    other = f"{tests[0].partition('::')[0]}::test_other"
    assert landings.unproven(passed | {other}, {other: "why"}) == ([], [told])
    for test in (f"{tests[0]}[1]", tests[0].partition("::")[0]):
        (line,), missing = landings.unproven(passed, {test: "no Engine"})
        assert line == f"PROOF SKIPPED here: {tests[0].partition('::')[0]} (no Engine)"
        assert missing == []


@pytest.mark.parametrize("text", [None, "", "[]", '{"landing": 3}', '{"landing": 3, "runs": {"a"'])
def test_without_a_ledger_chance_begins(tmp_path, text):
    file = tmp_path / "landings.json"
    if text is not None:
        file.write_text(text)
    empty = landings.read(file)
    assert empty == Ledger(0, {})
    first, again, other = (
        landings.choose(empty, head, lambda _: None) for head in (HEAD, HEAD, "0" * 40)
    )
    assert first == again != other
    assert sum(LONG[name] for name in first[0]) <= landings.ROOM["by turn"] - landings.BASE
    assert landings.overdue(landings.record(empty, HEAD, [], {})) == []
    whole, _ = landings.choose(empty, HEAD, lambda commit: None if commit else ["drill.py"])
    assert next(iter(whole.items())) == ("infra/test_drill.py", "touched")


def test_the_table_says_what_runs_and_since_when_not():
    before = ledger(drill=14)
    lines = landings.table(before, *landings.choose(before, HEAD, lambda _: []))
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].startswith("Landing 21: ")
    assert f"{'overdue':19}    10 s  landing 14, ffffffffff    infra/test_drill.py" in lines
    lines = landings.table(Ledger(0, {}), {}, dict.fromkeys(LONG, "by turn"))
    assert sum("not known here" in line for line in lines) == len(LONG)
    assert sum(line.startswith("proof only ") for line in lines) == len(PROOFS)


def test_a_landing_is_written_down_once_its_tests_have_passed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ran, "output", lambda *_, **__: f"{HEAD}\n")
    file, folder = tmp_path / "landings.json", landings.FOLDER
    drill, ui, serve = "infra/test_drill.py", "training/test_ui.py", "training/test_serve.py"
    whole = {drill: "by turn", ui: "by turn", serve: "by turn"}
    for name in ("outcomes", "costs"):
        (tmp_path / ".pytest_cache" / name).mkdir(parents=True)
    chosen = {"whole": whole, "left": [], "until": 0, "slow": 3.0}
    landings.CHOSEN.write_text(json.dumps(chosen))
    proofs = [f"{folder}{name}::{test}" for name, test in PROOFS.items()]
    skipped = f"{folder}{serve}::test_a"
    rows = [
        f"test\ta\t{test}\t3.5\t4.0\t90\n" for test in (f"{folder}{drill}::test_a", *proofs[1:])
    ]
    (landings.CACHE / "costs/a.tsv").write_text(
        "part\tname\ttest\tprocessor_s\tcontainers_s\twall_s\n" + "".join(rows)
    )

    def record(*skips: str, late: str = "") -> tuple[int, str]:
        outcome = {"passed": [folder + drill], "failed": [f"{folder}{ui}::test_at_first"]}
        text = json.dumps(outcome | {"skipped": {"no Engine": skips, landings.LATE: [late]}})
        (landings.CACHE / "outcomes/a.json").write_text(text)
        return landings.main(["record", str(file)]), capsys.readouterr().out

    told = f"PROOF NOT RUN: {proofs[0]} neither passed nor was skipped\n"
    assert record(skipped) == (1, told)
    assert not file.exists()
    told = f"PROOF SKIPPED here: {proofs[0].partition('::')[0]} (no Engine)\n"
    told += f"landing 1 is recorded; not run here: 1 {serve}\n"
    assert record(skipped, proofs[0]) == (0, told)
    assert landings.read(file) == Ledger(
        1,
        {
            drill: Run(1, HEAD, 2.5),
            ui: Run(1, HEAD, float(LONG[ui])),
            serve: Run(0, "", float(LONG[serve]), skipped=1),
        },
    )
    assert record(skipped, proofs[0], proofs[1])[1].count("PROOF SKIPPED here") == 2  # in its call
    # A file for which no time was left keeps its turn, although its proof passed.
    file.unlink()
    assert record(proofs[0], late=f"{folder}{drill}::test_b")[0] == 0
    assert landings.read(file).runs.keys() == {ui}


def _pytest(folder: Path, chosen: dict[str, object], files: dict[str, str]) -> list[str]:
    """Run files of tests as chosen; return each test with how it ended."""
    listed = folder / "chosen.json"
    listed.write_text(json.dumps(chosen))
    for name, code in files.items():
        file = folder / landings.FOLDER / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    command = [sys.executable, "-m", "pytest", "-p", "tests.landings", f"--landing={listed}", "-v"]
    command += ["-p", "no:cacheprovider", f"--rootdir={folder}", str(folder)]
    return re.findall(r"::(\w+ [A-Z]+)", ran.output(command, cwd=ROOT))


PROVEN, OTHER = "infra/hosts/test_stack.py", "infra/test_pages.py"
HAS_PROOF = f"def {PROOFS[PROVEN]}(): pass\ndef test_more(): pass\n"


def test_pytest_leaves_out_the_rest_but_not_the_proofs(tmp_path):
    files = {PROVEN: HAS_PROOF, OTHER: "raise OSError('imported for nothing')"}
    files["infra/test_short.py"] = "def test_short(): pass"
    chosen = {"whole": {}, "left": [PROVEN, OTHER], "until": time.time() + 900}
    ended = _pytest(tmp_path, chosen, files)
    assert ended == [f"{PROOFS[PROVEN]} PASSED", "test_short PASSED"]


def test_no_chosen_file_begins_too_late(tmp_path):
    files = {
        PROVEN: HAS_PROOF,
        OTHER: "def test_begins(): pass\ndef test_goes_on(): pass",
        "infra/test_drill.py": "def test_overdue(): pass",
        "infra/test_short.py": "def test_short(): pass",
    }
    whole = {PROVEN: "touched", OTHER: "by turn", "infra/test_drill.py": "overdue"}
    chosen = {"whole": whole, "left": [], "until": time.time() - 1}
    ended = _pytest(tmp_path, chosen, files)
    late = ["test_more SKIPPED", "test_begins SKIPPED", "test_goes_on SKIPPED"]
    assert sorted(ended) == sorted(
        [f"{PROOFS[PROVEN]} PASSED", "test_overdue PASSED", "test_short PASSED", *late]
    )


def test_what_begins_in_time_goes_on():
    plugin = landings._Landing({"whole": {OTHER: "touched"}, "left": [], "until": time.time() + 9})
    item = SimpleNamespace(nodeid=f"{landings.FOLDER}{OTHER}::test_begins")
    plugin.pytest_runtest_setup(item)
    plugin.until = 0
    try:
        plugin.pytest_runtest_setup(item)
    except pytest.skip.Exception:
        pytest.fail("the second test of a file that has begun was skipped")
