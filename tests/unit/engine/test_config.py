"""`config`: settings are changed as `pulumi config` does; the rest of the file stays."""

import io
import itertools
import json

import pytest
import yaml

from engine import cli, passphrase
from engine.crypto import Crypter

DECLARED = """
config:
  workers: {type: integer, default: 2}
  notebook: {type: boolean}
  bucket: {type: string, default: ray}
  nodeGroups: {type: array, default: []}
  head: {type: object, default: {}}
"""

COMMENTED = """\
# the stack
config:
  # before one
  files:one: 1  # in the line of one

  # before two
  files:two:
    # before x
    - x: 1
      y: 2  # in the line of y
    # before the second
    - x: 3
  # before three
  three: {q: 1, r: [2]}  # in the line of three
  # before four
  files:four: >-
    some
    text
  # before five
  files:five: 'yes'
  # before six
  files:six:
    a:
      b: "0"
# at the end
other: 1
"""
PATHS = ("one", "two", "two[0]", "two[1]", "two[0].x", "two[0].y", "three", "three.q", "three.r[0]")
PATHS += ("four", "five", "six", "six.a", "six.a.b")


@pytest.fixture
def project(stack):
    path = stack.project / "Pulumi.yaml"
    path.write_text(path.read_text().partition("\nconfig:")[0] + DECLARED)
    stack.settings.write_text("# ours\nconfig:\n  files:workers: 2  # few\n# end\n")
    return stack


def config(stack, *arguments):
    result = stack.run("config", *arguments)
    assert result.code == 0, result.err
    return result.out.removesuffix("\n")


def refused(stack, *arguments):
    before = stack.settings.read_text() if stack.settings.exists() else None
    result = stack.fails("config", *arguments)
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert (stack.settings.read_text() if stack.settings.exists() else None) == before
    return result.err


def settings(stack):
    return yaml.safe_load(stack.settings.read_text())["config"]


def test_a_setting_is_changed_and_the_rest_of_the_file_stays(project):
    project.settings.chmod(0o664)
    config(project, "set", "workers", "3")
    config(project, "set", "bucket", "012")
    assert project.settings.read_text() == (
        '# ours\nconfig:\n  files:workers: 3  # few\n# end\n  files:bucket: "012"\n'
    )
    assert project.settings.stat().st_mode & 0o777 == 0o664
    assert config(project, "get", "workers") == "3"
    assert config(project, "get", "files:bucket") == "012"
    config(project, "rm", "workers")
    assert config(project, "get", "workers") == "2"  # as Pulumi.yaml has it
    config(project, "rm", "bucket")
    assert project.settings.read_text() == "# ours\nconfig: {}\n# end\n"


def test_the_form_of_the_file_stays(project):  # F75
    """A link to a file of an editor on Windows."""
    target = project.settings.rename(project.project / "shared")
    target.write_bytes(b"\xef\xbb\xbf# ours\r\nconfig:\r\n  files:workers: 2  # few\r\n")
    project.settings.symlink_to("shared")
    config(project, "set", "workers", "3")
    assert project.settings.readlink() == target.relative_to(project.project)
    assert target.read_bytes() == (
        b"\xef\xbb\xbf# ours\r\nconfig:\r\n  files:workers: 3  # few\r\n"
    )
    assert config(project, "get", "workers") == "3"


def test_a_value_may_begin_with_a_dash(project):  # F76
    assert cli.main(["-C", str(project.project), "config", "set", "bucket", "--", "-x"]) == 0
    assert settings(project)["files:bucket"] == "-x"


@pytest.mark.parametrize(
    "text", ["yes", "[" * 9999, "0x1f", "1_000", "1:30", "~", "", "a: b", "# c", "[", "-"]
)
@pytest.mark.parametrize("more", ["", "\nsecond line"])
def test_a_text_stays_a_text(project, text, more, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(text + more))
    config(project, "set", "bucket")
    assert settings(project)["files:bucket"] == text + more
    assert project.run("config", "get", "bucket").out == f"{text}{more}\n"


def test_a_text_that_has_a_tag_or_only_looks_like_a_key_is_a_text(project):
    """`pulumi config set` writes = and << like this."""
    texts = {"equals": "=", "merge": "<<", "number": "5"}
    file = (
        "config:\n  files:equals: =\n  files:merge: !!merge <<  # ours\n  files:number: !!str 5\n"
    )
    project.settings.write_text(file + "  files:head:\n    merge: !!merge <<\n")
    for key, text in texts.items():
        assert config(project, "get", key) == text
    config(project, "set", "--path", "head.more", "+1")
    assert settings(project)["files:head"] == {"merge": "<<", "more": 1}
    assert {key: settings(project)[f"files:{key}"] for key in texts} == texts
    assert comments(project.settings.read_text()) == [" ours"]
    for key in texts:
        config(project, "rm", key)
    assert config(project, "get", "head") == '{"merge":"<<","more":1}'


def test_parts_are_set_by_path(project):
    for path, text in (
        ("nodeGroups[0].name", "cpu"),
        ("nodeGroups[1].resources.TPU", "4"),
        ('nodeGroups[1]["a.b"]', "01"),
        ("nodeGroups[0].count", "2"),
        ("files:nodeGroups[0].name", "a100"),
        ("head.spot", "true"),
    ):
        config(project, "set", "--path", path, text)
    groups = [{"name": "a100", "count": 2}, {"resources": {"TPU": 4}, "a.b": "01"}]
    assert settings(project)["files:nodeGroups"] == groups
    assert settings(project)["files:head"] == {"spot": True}
    assert json.loads(config(project, "get", "nodeGroups")) == groups
    assert config(project, "get", "--path", "nodeGroups[1].resources.TPU") == "4"
    config(project, "rm", "--path", "nodeGroups[0]")
    assert settings(project)["files:nodeGroups"] == groups[1:]


def comments(text):
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


def remaining(key):
    """The comments that stay where an entry goes: all but those in and inside of it."""
    inside = {"one": ["in the line of one"], "three": ["in the line of three"]}
    y = ["in the line of y"]
    inside |= {"two[0].y": y, "two[0]": y, "two": ["before x", *y, "before the second"]}
    return [c for c in comments(COMMENTED) if c.strip() not in inside.get(key, [])]


@pytest.mark.parametrize("key", PATHS)
def test_comments_of_other_entries_stay_where_one_goes(project, key):
    project.settings.write_text(COMMENTED)
    before = settings(project)
    config(project, "rm", "--path", key)
    text = project.settings.read_text()
    assert comments(text) == remaining(key)
    assert len(json.dumps(settings(project))) < len(json.dumps(before))
    untouched = {name for name in before if key.split(".")[0].split("[")[0] not in name}
    assert {name: settings(project)[name] for name in untouched} == {
        name: before[name] for name in untouched
    }


@pytest.mark.parametrize(("key", "secret"), list(itertools.product(PATHS, [False, True])))
def test_comments_of_other_entries_stay_where_one_changes(project, key, secret):
    project.settings.write_text(COMMENTED)
    config(project, "set", "--path", *["--secret"] * secret, key, "new")
    text = project.settings.read_text()
    assert [c for c in remaining(key) if c not in comments(text)] == []
    assert config(project, "get", "--path", key) == "new"
    config(project, "set", "--path", key, "newer")
    assert config(project, "get", "--path", key) == "newer"
    assert [c for c in remaining(key) if c not in comments(project.settings.read_text())] == []


def test_a_secret_is_encrypted_with_the_key_of_the_stack(project, monkeypatch):  # F18
    monkeypatch.setattr("sys.stdin", io.StringIO("canary\n"))
    config(project, "set", "--secret", "bucket")
    config(project, "set", "--secret", "--path", "head.token", "canary")
    text = project.settings.read_text()
    assert "canary" not in text
    assert config(project, "get", "bucket") == "canary"
    assert config(project, "get", "--path", "head.token") == "canary"
    listed = config(project, "ls").splitlines()
    assert f"{'bucket':24} [secret]" in listed
    assert f"{'workers':24} 2" in listed
    assert "canary" not in "".join(listed)
    assert f"{'bucket':24} canary" in config(project, "ls", "--show-secrets")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "another")
    assert "incorrect passphrase" in refused(project, "set", "--secret", "bucket", "x")
    assert "incorrect passphrase" in refused(project, "get", "bucket")


def test_the_key_is_that_of_the_state_where_the_file_has_none(stack):
    stack.up(a={"text": "1"})
    before = stack.state_file.read_text()
    stack.run("config", "set", "--secret", "more", "canary")
    salt = yaml.safe_load(stack.settings.read_text())["encryptionsalt"]
    assert json.dumps(salt) in before
    Crypter(passphrase.passphrase(), salt)
    stack.up("--expect-no-changes")


def test_the_first_secret_makes_the_passphrase(project, tmp_path, monkeypatch):
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    assert "made the passphrase" in config(project, "set", "--secret", "bucket", "x")
    assert config(project, "get", "bucket") == "x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "workers", "x"], "workers is 'x'; it must be of type integer"),
        (["set", "nodeGroups", "[]"], "is of type array: set one part at a time, as with --path"),
        (["set", "head.cpus", "3"], "'head.cpus' is not the name of a setting"),
        (["set", "a:b:c", "3"], "'a:b:c' is not the name of a setting"),
        (["set", "--path", "nodeGroups[1].x", "1"], "1 is too large; the next one is 0"),
        (["set", "--path", "nodeGroups.x", "1"], "it must be of type array"),
        (["set", "--path", "workers.x", "1"], "before 'x' is not an object"),
        (["set", "--path", "nodeGroups[0]..x", "1"], "is not a valid path"),
        (["set", "--path", "[0]", "1"], "is not a valid path"),
        (["get", "--path", "trainyard:"], "is not a valid path"),
        (["set", "--path", 'a["\\q"]', "1"], "is not a valid path"),
        (["set", "--path", f"a[{'1' * 5000}]", "1"], "is not a valid path"),
        (["rm", "bucket"], "Pulumi.dev.yaml does not set bucket; it sets: workers"),
        (["rm", "--path", "workers.x"], "does not set workers.x"),
        (["get", "nothing"], "nothing is not set"),
        (["get", "--path", "workers.x"], "workers.x is not set; workers is 2"),
    ],
)
def test_what_cannot_be_done_is_one_message(project, arguments, message):  # F39
    assert message in refused(project, *arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config: {a", "is not valid YAML"),
        ("config: [a]", "config must be a mapping"),
        ("[a]", "must hold a mapping"),
        ("config: {a: 1, a: 2}", "is not valid YAML"),
    ],
)
def test_a_file_that_is_not_valid_is_left_alone(project, text, message):
    project.settings.write_text(text)
    assert message in refused(project, "set", "bucket", "x")


@pytest.mark.parametrize("secret", [[], ["--secret"]])
@pytest.mark.parametrize("text", ["a\0b", "x" * 300_000])
def test_a_value_that_no_settings_file_may_have_is_refused(
    project, monkeypatch, text, secret
):  # F67
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    told = refused(project, "set", "bucket", *secret)
    assert "nothing was changed: Pulumi.dev.yaml: bucket" in told
    assert len(told) < 500


def test_a_stack_that_does_not_exist(project):
    project.settings.unlink()
    assert "no stack named 'dev'" in refused(project, "set", "workers", "3")


def test_a_file_that_cannot_be_written_is_as_before(project, monkeypatch, full):
    monkeypatch.setattr("trainyard.access.users_file.replace", full)
    assert "No space left on device" in refused(project, "set", "workers", "3")
