import re

import pytest
import yaml
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig

from trainyard.client import runtimes
from trainyard.client.errors import ClientError


@pytest.mark.parametrize("name", ["cpu", "gpu", "tpu"])
def test_runtime_environments_have_names(name):  # B11 B24
    assert yaml.safe_load(runtimes.find(name).read_text())["env_vars"]


def test_a_file_of_ones_own(tmp_path, monkeypatch):  # B25
    monkeypatch.chdir(tmp_path)
    assert runtimes.find("own.yaml").name == "own.yaml"


def test_a_name_that_nobody_has():
    names = "accelerate, conda, cpu, deepspeed, gpu, jax, keras, lightgbm, plain, tensorflow, tpu"
    with pytest.raises(ClientError, match=f"'tup': give one of {names}, xgboost, or"):
        runtimes.find("tup")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2]", "is not a mapping of Ray's keys"),
        ("0", "is not a mapping of Ray's keys"),
        ("a: [", "cannot read runtime environment"),
        ("a: !!python/object:os.system x", "cannot read runtime environment"),
        ("a: \0", "cannot read runtime environment"),
        ("env_var: {A: b}", "has the key 'env_var', which Ray does not know: did you mean 'env_v"),
        ("1: x", "has the key '1', which Ray does not know: keys are working_dir,"),
        ("config: {eager_instal: true}", "config of .* did you mean 'eager_install'"),
        ("excludes: big", "excludes is 'big', and must be a list of texts"),
        ("py_modules: ['']", r"py_modules is \[''\], and must be a list of texts"),
        ("env_vars: A", "env_vars is 'A', and must be a mapping"),
        ("env_vars: {A: 1}", "env_vars has 'A': 1, and Ray takes texts only: put both in quotes"),
        ("env_vars: {A: }", "env_vars has 'A': None"),
        ("config: 3", "config is 3, and must be a mapping"),
        ("pip: 3", "pip is 3, and must be a list, a mapping or a file's name"),
        ("env_vars: {A: b, A: c}", "line 1, .* the key 'A' is there twice: remove one"),  # F67
        ("env_vars: {A: &a [*a]}", "a part of it is an alias of the whole"),
        ('env_vars: {A: "\\0"}', r"env_vars.A has the character '\\x00'"),
        ("working_dir: [x]", r"working_dir is \['x'\], and must be a text"),
    ],
)
def test_what_ray_would_misread_is_one_message(tmp_path, text, said):  # F39 F60
    file = tmp_path / "env.yaml"
    file.write_text(text)
    with pytest.raises(ClientError, match=said) as caught:
        runtimes.read(file)
    assert "env.yaml" in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing", "pip:\nenv_vars:\nexcludes:\nconfig:\n"])
def test_keys_without_a_value_are_none(tmp_path, text):  # F60
    file = tmp_path / "env.yaml"
    file.write_text(text)
    assert runtimes.read(file) == {}


def test_files_of_packages_are_read_as_ray_reads_them(tmp_path, monkeypatch):  # B25
    """A client without Ray sends what Ray's own would."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("\nhumanize==4\n# a comment\nrich\n")
    (tmp_path / "conda.yml").write_text("dependencies: [pip]\n")
    for key, name in (("pip", "list.txt"), ("uv", "list.txt"), ("conda", "conda.yml")):
        mine = runtimes.with_files({key: name})
        assert mine != {key: name}
        assert RuntimeEnv(**mine).to_dict() == RuntimeEnv(**{key: name}).to_dict()
        with pytest.raises(ClientError, match=f"cannot read {key} of the .*missing-{name}"):
            runtimes.with_files({key: f"missing-{name}"})
    assert runtimes.with_files({"conda": "aims-ray"}) == {"conda": "aims-ray"}


def test_the_keys_are_those_that_ray_takes():  # F60
    ours = {key for key in RuntimeEnv.known_fields if not re.match("_ray_|_inject_", key)}
    assert runtimes.KEYS.keys() == ours
    assert set(runtimes.CONFIG_KEYS) == RuntimeEnvConfig.known_fields


def test_packages_and_variables_of_the_command_line_are_added(tmp_path):
    listed = tmp_path / "requirements.txt"
    listed.write_text("# ours\nxgboost==3.0  # trees\n\n-c limits.txt\n")
    packages = runtimes.requirements([listed])
    assert packages == ["xgboost==3.0", "-c limits.txt"]
    assert runtimes.with_more({}, [], []) == {}
    made = runtimes.with_more({"env_vars": {"A": "1"}}, packages, ["B=2=3", "A="])
    assert made == {"env_vars": {"A": "", "B": "2=3"}, "pip": {"packages": packages}}
    for pip in (["a"], {"packages": ["a"], "pip_check": True}):
        found = runtimes.with_more({"pip": pip}, ["b"], [])["pip"]
        assert found["packages"] == ["a", "b"]
        assert found.get("pip_check", False) == isinstance(pip, dict)
    listed.write_text("a")
    assert runtimes.with_more({"pip": str(listed)}, ["b"], [])["pip"]["packages"] == ["a", "b"]
    for bad in ("B", "=1", "a-b=1", "1=2"):
        with pytest.raises(ClientError, match="is not KEY=VALUE, such as --env SEED=1"):
            runtimes.with_more({}, [], [bad])
    with pytest.raises(ClientError, match="the runtime environment has uv, and pip installs b"):
        runtimes.with_more({"uv": ["a"]}, ["b"], [])
    with pytest.raises(ClientError, match="cannot read the requirements"):
        runtimes.requirements([tmp_path / "gone"])


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("", []),
        ("# /// script\n# dependencies = [\n#   'a>=1',\n# ]\n# ///\nimport a\n", ["a>=1"]),
        ("# /// script\n#\n# requires-python = '>=3'\n# ///\n", []),
        ("# /// other\n# dependencies = ['a']\n# ///\n", []),
        ("# /// script\n# dependencies = ['a']\nprint('no end')\n", []),
    ],
)
def test_a_script_may_name_its_packages_itself(text, packages, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(text)
    assert runtimes.inline(script) == packages


@pytest.mark.parametrize(("line", "said"), [("dep = [", "is not TOML"), ("dependencies = 3", "3")])
def test_a_comment_that_names_them_wrongly_is_refused(line, said, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(f"# /// script\n# {line}\n# ///\n")
    with pytest.raises(ClientError, match=said):
        runtimes.inline(script)
