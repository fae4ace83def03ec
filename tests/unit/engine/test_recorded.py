"""A user who can write a state cannot run code where it is read: F48."""

import base64
import json
import os
import pickle
import shutil

import pulumi
import pytest

from engine.recorded import of_kind
from engine.values import SECRET, SIGNATURE
from infra.operate.drift.look import look
from infra.operate.review import planned
from trainyard.access import state_folder

COMMANDS = [
    ("refresh",),
    ("preview",),
    ("preview", "--refresh"),
    ("up",),
    ("up", "--refresh"),
    ("destroy",),
    ("output", "--show-secrets"),
]
INLINE = """
import pulumi
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Inline(ResourceProvider):
    {options}

    def create(self, props):
        return CreateResult("here", props)

class Thing(Resource):
    def __init__(self, name):
        super().__init__(Inline(), name, {{"text": "x"}})

if pulumi.Config().get("shape") != "{{}}":
    Thing("a")
"""


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture
def made(stack, tmp_path):
    """A stack whose state can be written by somebody who does not know the passphrase."""
    stack.up(a={"text": "one", "token": "a-token"}, b={})
    stack.declare(a={"text": "two", "token": "a-token"})
    stack.canary = tmp_path / "canary"
    return stack


def _pickle(of):
    return base64.b64encode(pickle.dumps(of)).decode()


def _command(stack):
    return _pickle(Command(f"touch {stack.canary}"))


def _tamper(stack, provider):
    """Give the resource `a` another provider, in a state as the CLI writes it."""
    fields = {name: stack.resource("a")[name] for name in ("inputs", "outputs")}
    for properties in fields.values():
        properties["__provider"] = provider
    stack.change_entry("a", **fields)


def _refused(stack, message, commands=COMMANDS):
    """Each way of reading the state refuses it, and nothing runs or changes."""
    before = stack.everything()
    for command in commands:
        assert message in stack.refuses(*command).err, command
    with pytest.raises(pulumi.RunError, match=message):
        look(stack.project, "dev")
    with pytest.raises(pulumi.RunError, match=message):
        planned.read(stack.project, "dev", stack.root / "plan.json", None, None)
    assert not stack.canary.exists()
    assert stack.everything() == before


def test_a_pickle_in_the_clear_is_never_run(made):  # F48
    _tamper(made, _command(made))
    _refused(made, "has a provider in the clear that is not a name")


def test_a_pickle_of_what_was_interrupted_is_never_run(made):  # F48
    bad = made.resource("a")
    bad["inputs"]["__provider"] = _command(made)
    with made.edited() as latest:
        latest["pending_operations"] = [{"resource": bad, "type": "creating"}]
    _refused(made, "has a provider in the clear that is not a name")


@pytest.mark.parametrize("field", ["value", "ciphertext"])
def test_a_pickle_that_only_looks_encrypted_is_never_run(made, field):  # F48
    _tamper(made, {SIGNATURE: SECRET, field: _command(made)})
    _refused(made, "holds a secret that cannot be decrypted")


AS_IT_IS, CALLED = b")\x81\x94.", b"\x8c\x04kind\x94\x85\x94R\x94."


@pytest.mark.parametrize(
    ("names", "end"),
    [
        ("strange.Strange", AS_IT_IS),
        ("os.system", AS_IT_IS),
        ("filestore.json", AS_IT_IS),
        ("os.remove", CALLED),
        ("filestore.Group", CALLED),
    ],
)
def test_only_providers_of_the_program_are_taken_by_name(  # F48
    made, names, end, tmp_path, monkeypatch
):
    strange = f"open({str(made.canary)!r}, 'w')\nclass Strange: pass\n"
    (tmp_path / "strange.py").write_text(strange)
    monkeypatch.syspath_prepend(tmp_path)
    parts = (part.encode() for part in names.split("."))
    texts = b"".join(b"\x8c" + bytes([len(part)]) + part + b"\x94" for part in parts)
    pickled = b"\x80\x04\x95" + bytes(8) + texts + b"\x93\x94" + end
    _tamper(made, base64.b64encode(pickled).decode())
    refused = f"the state records the provider {names}, which is neither of "
    (said,) = (each.said for each in look(made.project, "dev").seen if each.name == "a")
    assert refused in said
    for command in (("refresh",), ("preview", "--refresh"), ("destroy",)):
        assert refused in made.fails(*command).out
    assert "a.0.json" in made.files()
    made.up()  # which takes the one that the program gives
    assert made.files()["a.0.json"] == "two"
    assert not made.canary.exists()


def test_a_state_that_was_changed_under_its_seal_is_refused(made):  # F48
    document = json.loads(made.state_file.read_text())
    good = json.dumps(document)
    latest = document["checkpoint"]["latest"]
    latest["resources"][-1]["outputs"]["path"] = "/elsewhere"
    document["sha256"] = state_folder.digest(document["checkpoint"])
    made.state_file.write_text(json.dumps(document))
    _refused(made, "was changed by somebody without its passphrase")
    # A state of another stack, with the same passphrase.
    shutil.copy(made.settings, made.settings.with_name("Pulumi.other.yaml"))
    assert made.run("up", stack="other").code == 0
    other = made.state_file.with_name("other.json").read_text()
    document = json.loads(other.replace("urn:pulumi:other::", "urn:pulumi:dev::"))
    document["sha256"] = state_folder.digest(document["checkpoint"])
    made.state_file.write_text(json.dumps(document))
    _refused(made, "was changed by somebody without its passphrase")
    made.state_file.write_text(good)
    assert made.run("refresh").code == 0


def test_a_state_without_a_seal_is_told_until_it_has_one_again(made):  # F48
    made.change_entry("a")  # as after the pulumi CLI wrote it
    told = "the state has no seal of this engine"
    assert told in made.run("preview").out
    assert told in made.up().out
    assert told not in made.up().out


def _inline(stack, options):
    (stack.project / "__main__.py").write_text(INLINE.format(options=options))


def test_a_provider_of_the_program_itself_is_a_secret_of_the_stack(made):  # F48
    _inline(made, "")
    made.up()
    assert made.resource("a")["outputs"]["__provider"].keys() == {SIGNATURE, "ciphertext"}
    made.change_entry("a")  # without a seal, too
    for command in (("refresh",), ("up", "--expect-no-changes"), ("destroy",)):
        assert made.run(*command).code == 0, command


def test_a_provider_that_no_later_operation_would_take_makes_nothing(made):  # F48
    made.declare()
    made.up()
    _inline(made, "serialize_as_secret_always = False")
    made.declare(a={})
    result = made.fails("up")
    assert "leave serialize_as_secret_always as it is" in result.out + result.err
    assert [each for each in made.resources() if each["urn"].endswith("::a")] == []


def test_a_kind_that_this_version_does_not_have_is_refused(made):
    _tamper(made, of_kind("host:Unknown"))
    said = made.fails("destroy").out
    assert "cannot be loaded ('host:Unknown'); check out the version of the program" in said
