"""The page of a plan: what it says, and what it hides."""

import json
import re
from typing import Any

import pytest
from markdown_it import MarkdownIt

from infra.operate.dashboard import AskError
from infra.operate.review import __main__ as review
from infra.operate.review import jobs, page
from infra.operate.review.facts import Cost, cost, listening
from infra.operate.review.planned import Change, PlannedResource, RuleMessage, StackPlan
from tests.hostile import HARM, MARKDOWN
from tests.unit.engine.conftest import stack  # noqa: F401 - a fixture: a stack of files
from trainyard.access.markdown import NOTHING
from trainyard.access.terminal import CONTROL

PACK = """
from types import SimpleNamespace

def no_rude_text(type_, props):
    if type_ == "pulumi-python:dynamic/files:File" and props.get("text") == "rude":
        yield f"says <rude> | words {props.get('token', '')}"

RULES = [SimpleNamespace(name="no-rude", level="mandatory", check=no_rude_text)]
"""


def _resource(type_: str, name: str = "x", **props: Any) -> PlannedResource:
    return PlannedResource(name=name, type=type_, props=props)


def _planned(**fields: Any) -> StackPlan:
    empty = {"commit": "", "changes": [], "before": [], "after": [], "verdicts": []}
    return StackPlan(**({"stack": "prod"} | empty | fields))


@pytest.fixture
def run(stack, capsys, tmp_path) -> Any:  # noqa: F811
    """Plan what is declared, and show it; the exit code and what was printed."""

    def command(*arguments: str) -> tuple[int, str]:
        file = str(tmp_path / "plan.json")
        planned = stack.run("preview", "--save-plan", file)
        assert planned.code == 0, planned.err
        capsys.readouterr()
        code = review.main(["-C", str(stack.project), "-s", "dev", file, *arguments])
        printed = capsys.readouterr()
        return code, printed.out or printed.err

    return command


def test_a_plan_of_a_stack_of_files(stack, run):  # noqa: F811
    stack.declare(a={"text": "one"}, b={"token": "canary-token"}, c={}, d={})
    code, text = run()
    assert code == 0
    assert "## dev: 4 to create" in text
    stack.up()
    before = stack.state_file.read_bytes()
    stack.declare(a={"text": "t|w`o"}, b={"token": "canary-other"}, c={"kind": "other"}, e={})
    code, text = run()
    assert code == 0
    assert text.startswith(
        "<!-- trainyard: preview of dev -->\n"
        "## dev: 1 to create, 2 to update, 1 to replace, 1 to delete\n"
        "- **Replaced or deleted**: `c`, `d`\n"
    )
    assert "| replace | `c` (files:File) | kind: plain → other |\n" in text
    assert "| update | `a` (files:File) | text: one → t&#124;w&#96;o |\n" in text
    assert "| update | `b` (files:File) | token: [secret] → [secret] |\n" in text
    assert "canary" not in text
    code, text = run("--json")
    document = json.loads(text)
    assert document["counts"] == {"create": 1, "update": 2, "replace": 1, "delete": 1}
    assert "canary" not in text
    assert stack.state_file.read_bytes() == before
    assert len(stack.journal()) == 4  # only those of the `up`


def test_policies_are_part_of_the_page(stack, run, tmp_path):  # noqa: F811
    (tmp_path / "rules.py").write_text(PACK)
    rules = ("--policy-pack", str(tmp_path))
    stack.declare(a={"text": "rude"})
    code, text = run(*rules)
    assert code == 1
    assert (
        "- **Policy, refused**: `a`: no-rude (mandatory): says &#60;rude&#62; &#124; words\n"
        in text
    )
    (tmp_path / "levels.json").write_text('{"no-rude": "advisory"}')
    code, text = run(*rules, "--policy-pack-config", str(tmp_path / "levels.json"))
    assert code == 0
    assert "- **Policy, note**: `a`: no-rude (advisory)" in text
    # Not only what changes.
    stack.up()
    assert run(*rules)[0] == 1
    assert "## dev: nothing to do" in run(*rules)[1]


def test_a_plan_that_cannot_be_shown(stack, capsys, tmp_path):  # noqa: F811
    stack.declare(a={})
    file = tmp_path / "plan.json"
    place = ["-C", str(stack.project), "-s", "dev", str(file)]
    assert review.main(place) == 1
    assert "plan.json cannot be read" in capsys.readouterr().err
    stack.run("preview", "--save-plan", str(file))
    stack.up()
    capsys.readouterr()
    assert review.main(place) == 1
    assert "was made for another state" in capsys.readouterr().err
    assert review.main([*place, "--policy-pack", str(tmp_path / "none")]) == 1


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [], (0, 0, None, 0)),
        (
            [_resource("lambda:Instance", hourlyCost=0.75)] * 2,
            [_resource("lambda:Choice", hourlyCost=2.25, ttlHours=8, budget=20)],
            (1.5, 2.25, 18, 20),
        ),
        (
            [],
            [_resource("lambda:Choice", hourlyCost=0.75, ttlHours=0, budget=0)],
            (0, 0.75, None, 0),
        ),
        ([_resource("lambda:Instance", hourlyCost=0.75)], [], (0.75, 0, None, 0)),
    ],
)
def test_cost(before, after, expected):
    now, planned, total, budget = expected
    assert cost(before, after) == Cost(before=now, after=planned, total=total, budget=budget)


def test_a_page_tells_what_is_paid_and_who_can_reach_it():
    rule = {"firstPort": 22, "lastPort": 22, "sourceNetwork": "10.0.0.0/8"}
    after = [
        _resource("lambda:Choice", hourlyCost=0.75, ttlHours=8, budget=8),
        _resource("lambda:FirewallRuleset", "firewall", rules=[rule]),
        _resource("process:Program", "ray-head", ports=[{"number": 8265.0}]),
        _resource(
            "process:Program", "far", ports=[{"number": 9090}], health=["http://10.0.0.7:9090/-/x"]
        ),
        _resource("container:Container", "store", ports=[{"ip": "10.1.2.3", "external": 9000}]),
        _resource("container:Container", "unknown", ports="04da6b54"),
    ]
    assert listening(after) == {
        "far": ["10.0.0.7:9090"],
        "firewall": ["ports 22 to 22 from 10.0.0.0/8"],
        "ray-head": ["127.0.0.1:8265"],
        "store": ["10.1.2.3:9000"],
    }
    text = page.to_markdown(_planned(commit="0123456789abcdef", before=after[2:3], after=after))
    assert "Commit `0123456789ab`\n" in text
    assert "- **Cost**: 0.00 → 0.75 $/h, 6.00 $ to its end (budget 8.00 $)\n" in text
    assert (
        "- **Opens beyond loopback**: `10.0.0.7:9090`, `10.1.2.3:9000`, "
        "`ports 22 to 22 from 10.0.0.0/8`\n"
    ) in text
    text = page.to_markdown(_planned(after=after[2:3]))
    assert "Opens" not in text
    assert "| `ray-head` | `127.0.0.1:8265` |" in text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"month": 34.1}, "; 34.10 $ so far this month"),
        ({"month": "much"}, ""),
        ([], ""),
        (AskError("no answer"), ""),
    ],
)
def test_a_page_tells_what_the_month_has_cost(answer, said, monkeypatch):
    asked = []

    def ask(_known: Any, _way: Any, path: str) -> Any:
        asked.append(path.partition("?")[0])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr("infra.operate.dashboard.ask_dashboard", ask)
    known = {"dashboardUrl": "http://127.0.0.1:8270", "queue": "true"}
    after = [_resource("lambda:Choice", hourlyCost=0.75, ttlHours=0)]
    text = page.to_markdown(_planned(after=after, outputs=known))
    assert f"- **Cost**: 0.00 → 0.75 $/h, without an end{said}\n" in text
    assert asked == ["/api/queue/cost"]
    free = page.document(_planned(after=after, outputs=known | {"queue": ""}))
    assert (free["cost"]["month"], len(asked)) == (None, 1)


def test_a_page_of_nothing_is_short():
    assert page.to_markdown(_planned()) == (
        "<!-- trainyard: preview of prod -->\n## prod: nothing to do\n"
    )
    verdict = RuleMessage(name="a", message="m", mandatory=False)
    assert not page.is_refused(_planned(verdicts=[verdict]))
    change = Change(operation="delete", name="a", type="t", differs={})
    assert page.document(_planned(changes=[change]))["counts"] == {"delete": 1}


def _restart(name: str, *changed: str, operation: str = "update") -> Change:
    differs = dict.fromkeys(changed, ("1", "2"))
    return Change(operation=operation, name=name, type="process:Program", differs=differs)


def test_a_program_that_stays_as_it_is_costs_no_jobs():
    def nodes(*changed: str, operation: str = "update") -> list[str]:
        changes = [_restart("local-ray-worker-1", *changed, operation=operation)]
        return jobs.at_risk(_planned(changes=changes)).nodes

    assert nodes("startTimeout", "ports[0].setting") == []
    assert nodes("startTimeout", "environment.A") == nodes() == ["ray-worker-1"]
    assert nodes("folder", operation="replace") == ["ray-worker-1"]


def test_all_jobs_end_with_all_pods_of_ray(monkeypatch):
    job = {"submission_id": "job-1", "status": "RUNNING", "metadata": {}}
    monkeypatch.setattr("infra.operate.dashboard.ask_dashboard", lambda *_: [job])
    guard = Change(operation="update", name="guard", type="kubernetes:RecreateGuard", differs={})
    known = {"dashboardUrl": "http://127.0.0.1:8265"}
    text = page.to_markdown(_planned(changes=[guard], outputs=known))
    assert "`job-1`; with `all pods of Ray` all end" in text


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        (
            "local-ray-worker-1",
            [
                {"submission_id": "job-1", "status": "RUNNING", "metadata": {"run": "night"}},
                {"submission_id": "job-2", "status": "SUCCEEDED", "metadata": {}},
            ],
            "`job-1 (night)`; with `ray-worker-1` jobs there go on from their last checkpoint",
        ),
        (
            "local-ray-head",
            [{"submission_id": "job-1", "status": "PENDING", "metadata": None}],
            "- **Jobs that run now**: `job-1`; with `ray-head` all end",
        ),
        ("local-ray-head", [], ""),
        ("local-ray-head", {"not": "a list"}, "are not known: Ray's dashboard gives no list of"),
        ("local-ray-head", AskError("no answer"), "are not known: no answer"),
        ("local-grafana", AssertionError("is not asked"), ""),
    ],
)
def test_jobs_that_a_plan_costs_are_named(name, answer, said, monkeypatch):
    def ask(*_: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr("infra.operate.dashboard.ask_dashboard", ask)
    known = {"dashboardUrl": "http://127.0.0.1:8265"}
    text = page.to_markdown(_planned(changes=[_restart(name)], outputs=known))
    assert said in text
    assert ("Jobs that run now" in text) == bool(said)


@pytest.mark.parametrize("harm", (HARM | MARKDOWN).values(), ids=HARM | MARKDOWN)
def test_a_page_holds_no_markdown_of_others(harm, monkeypatch):  # F39
    def made(name: str) -> tuple[str, list[str]]:
        job = {"submission_id": f"job-{name}", "status": "RUNNING", "metadata": {"run": name}}
        monkeypatch.setattr("infra.operate.dashboard.ask_dashboard", lambda *_: [job])
        change = Change(
            operation="replace",
            name=f"ray-worker-1{name}",
            type="process:Program",
            differs={f"a{name}": (f"b{name}", f"c{name}")},
        )
        service = _resource("container:Container", f"x{name}", ports=[{"ip": f"1{name}"}])
        verdict = RuleMessage(name=f"a{name}", message=f"m{name}", mandatory=True)
        text = page.to_markdown(
            _planned(
                changes=[change],
                after=[service],
                verdicts=[verdict],
                outputs={"dashboardUrl": "http://127.0.0.1:8265"},
            )
        )
        found = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
        tokens = [each for token in found for each in (token, *(token.children or ()))]
        # A name is a span of code, or a text between <code> and </code>.
        kinds = [token.type for token in tokens if token.type not in ("text", "code_inline")]
        html = [token.content for token in tokens if token.type == "html_inline"]
        assert {*html} <= {"<code>", "</code>"}
        assert not CONTROL.search(text.replace(NOTHING, ""))
        outside = "".join(t.content for t in tokens if t.type in ("text", "html_inline"))
        shown = re.sub("<code>.*?</code>", "", outside)
        assert not re.search(r"[@#]\w", shown)
        return text, [kind for kind in kinds if kind != "html_inline"]

    assert made(harm)[1] == made("plain")[1]
