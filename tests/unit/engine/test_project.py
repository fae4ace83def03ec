"""Project and settings files: read as the pulumi CLI reads them, and each fault one message."""

import json

import pytest

from engine.crypto import Crypter
from engine.errors import EngineError, UnsupportedError
from engine.project import Project, check_stack_name, read_settings

PHRASE = "x"
SALT = "v1:3/77fFO6W/8=:v1:grbGViW6bVIMqDp+:Z7Fen2VyWAIOtqQiUiyadzlD/l938w=="


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", PHRASE)
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    return Project.find(tmp_path)


def _settings(project, text, state_salt=""):
    (project.root / "Pulumi.dev.yaml").write_text(text)
    return read_settings(project, "dev", state_salt)


@pytest.mark.parametrize("written", ["2026-11-30", "2026-11-30T10:00:00Z", "[2026-11-30]"])
def test_a_date_is_written_as_text(project, written):
    """The CLI would write it as another text, and programs would see that."""
    with pytest.raises(EngineError, match=r"a holds a date(time)?, .*; write it as text"):
        _settings(project, f"config: {{a: {written}}}")
    with pytest.raises(EngineError, match="write it as text"):
        _settings(project, "config: {a: {2026-11-30: x}}")
    assert _settings(project, "config: {a: '2026-11-30'}").config == {"p:a": "2026-11-30"}


@pytest.mark.parametrize(("written", "given"), [("5", "5"), ("true", "true"), ("1.5", "1.5")])
def test_keys_in_objects_are_texts(project, written, given):
    config = _settings(project, f"config: {{a: {{{written}: x, y: null}}}}").config
    assert json.loads(config["p:a"]) == {given: "x", "y": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config: {a: {b: !!binary aGk=}}", "a holds a bytes, which JSON cannot hold"),
        ("config: {a: !!set {b, c}}", "a holds a set, which JSON cannot hold"),
        ("config: {1: a}", "config must be a mapping with texts as keys"),
        ("config: [a]", "config must be a mapping"),
        ("[a]", "must hold a mapping, not list"),
        ("config: {a: !!python/object/apply:os.getcwd []}", "is not valid YAML"),
        ("config: {? [a] : b}", "is not valid YAML"),
        ("config: {a", "is not valid YAML"),
        ("config: " + "[" * 1200, "is not valid YAML"),
    ],
)
def test_what_is_no_settings_file_is_one_message(project, text, message):  # F39
    with pytest.raises(EngineError, match=rf"Pulumi\.dev\.yaml.*{message}"):
        _settings(project, text)


def test_a_settings_file_that_cannot_be_read_is_one_message(project):
    (project.root / "Pulumi.dev.yaml").write_bytes(b"config: {a: \xff}")
    with pytest.raises(EngineError, match=r"Pulumi\.dev\.yaml cannot be read"):
        read_settings(project, "dev")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runtime: python", "the name None is not valid"),
        ("name: ..\nruntime: python", r"the name '\.\.' is not valid; use 1 to 100 letters"),
        ("name: a/b\nruntime: python", "the name 'a/b' is not valid"),
        ("name: [a]\nruntime: python", r"the name \['a'\] is not valid"),
        ("name: p\nruntime: python\nconfig: [a]", "config must be a mapping"),
        ("name: p\nruntime: python\nconfig: {a: 7}", "the declaration of a in Pulumi.yaml"),
        ("name: p\nruntime: python\nconfig: {a: {type: string, value: v}}", "declaration of a"),
        ("name: p\nruntime: python\nbackend: x", "backend must be a mapping"),
        ("name: p\nruntime: nodejs", "runtime 'nodejs'"),
        ("name: p\nruntime: {name: nodejs}", "runtime 'nodejs'"),
    ],
)
def test_a_project_that_cannot_be_run_is_one_message(tmp_path, text, message):
    with pytest.raises(EngineError, match=r"no Pulumi.yaml in"):
        Project.find(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text(text)
    with pytest.raises(EngineError, match=message):
        Project.find(tmp_path)


def test_a_project_is_read_whole(tmp_path):
    (tmp_path / "Pulumi.yaml").write_text(
        "name: p\nruntime: {name: python}\nmain: infra/\nbackend: {url: file://~/s}\n"
        "config: {a: {type: integer, default: 5}, 'q:b': {secret: true, type: string},"
        " d: {type: string}, e: {type: object, default: {of: its own}}}\n"
    )
    (tmp_path / "sub").mkdir()
    project = Project.find(tmp_path / "sub")
    assert (project.name, project.root, project.main) == ("p", tmp_path, tmp_path / "infra")
    assert project.backend_url == "file://~/s"
    settings = read_settings(project, "none")
    assert settings.config == {
        "p:a": "5",
        "p:e": '{"of":"its own"}',
    }
    assert settings.secret_keys == ["q:b"]
    assert settings.salt == ""


@pytest.mark.parametrize(
    ("type_", "value", "right"),
    [
        ("string", "x", True),
        ("string", "5", False),
        ("integer", "5", True),
        ("integer", "'5'", True),
        ("integer", "-5", True),
        ("integer", "true", False),
        ("integer", "5.5", False),
        ("boolean", "true", True),
        ("boolean", "'False'", True),
        ("boolean", "1", False),
        ("array", "[1]", True),
        ("array", "{a: 1}", False),
        ("object", "{a: 1}", True),
        ("object", "x", False),
        ("object", "null", True),
        ("number", "x", True),  # not known here: the program sees it
    ],
)
def test_the_type_of_a_setting_is_checked(tmp_path, type_, value, right):
    declared = f"name: p\nruntime: python\nconfig: {{a: {{type: {type_}}}}}\n"
    (tmp_path / "Pulumi.yaml").write_text(declared)
    project = Project.find(tmp_path)
    text = f"config: {{a: {value}}}"
    if right:
        assert "p:a" in _settings(project, text).config
    else:
        with pytest.raises(EngineError, match=f"Pulumi.dev.yaml: a is .* must be of type {type_}"):
            _settings(project, text)


@pytest.mark.parametrize("name", ["dev", "a" * 100, "A-b_c.9", "..."])
def test_names_that_a_stack_can_have(name):
    assert check_stack_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 101, "a/b", "a b", "dev\n", "é", "../x"])
def test_names_that_a_stack_cannot_have(name):  # F39
    with pytest.raises(EngineError, match=r"stack name .* is not valid; use 1 to 100 letters"):
        check_stack_name(name)


def _secure(text, salt=SALT):
    return f"{{secure: '{Crypter(PHRASE, salt).encrypt(text)}'}}"


def test_secrets_are_read_wherever_they_are(project):
    text = (
        f"encryptionsalt: {SALT}\n"
        f"config: {{a: {_secure('one')}, b: {{c: [{_secure('two')}], d: 1}}, e: f}}"
    )
    settings = _settings(project, text)
    assert settings.config == {"p:a": "one", "p:b": '{"c":["two"],"d":1}', "p:e": "f"}
    assert settings.secret_keys == ["p:a", "p:b"]
    assert {"one", "two"} <= {*settings.secrets}  # hidden in what the engine prints  # F35
    assert settings.salt == SALT


def test_a_salt_that_was_lost_is_taken_from_the_state(project):
    settings = _settings(project, f"config: {{a: {_secure('one')}}}", state_salt=SALT)
    assert settings.config == {"p:a": "one"}
    assert settings.salt == ""
    with pytest.raises(EngineError, match="a is encrypted but encryptionsalt is missing, here and"):
        _settings(project, f"config: {{a: {_secure('one')}}}")


def test_a_secret_of_another_salt_is_one_message(project):  # F18
    other = Crypter.fresh(PHRASE).salt
    with pytest.raises(
        EngineError, match=r"Pulumi.dev.yaml: a cannot be decrypted: .*set it again"
    ):
        _settings(project, f"config: {{a: {_secure('one')}}}", state_salt=other)


@pytest.mark.parametrize("provider", ["awskms://alias/x", "default", "passphrase"])
def test_another_secrets_provider_of_the_settings_is_refused(project, provider):  # F18
    text = f"secretsprovider: {provider}\nconfig: {{a: b}}"
    if provider.startswith("aws"):
        with pytest.raises(UnsupportedError, match="the secrets provider 'awskms://alias/x' of"):
            _settings(project, text)
    else:
        assert _settings(project, text).config == {"p:a": "b"}
