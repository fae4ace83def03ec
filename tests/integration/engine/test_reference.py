"""References to other stacks, under the embedded engine."""

import json
from functools import partial

import pytest

pytestmark = pytest.mark.integration

DEV = "organization/files/dev"


def declare(engine, stack, **shape):
    config = {"folder": str(engine.folder), "shape": shape}
    (engine.project / f"Pulumi.{stack}.yaml").write_text(json.dumps({"config": config}))


def state(engine, stack):
    return engine.state_file.with_name(f"{stack}.json").read_text()


def test_a_stack_reads_the_outputs_of_another(engine):
    declare(engine, "dev", a={"text": "1", "token": "canary-token"})
    engine.up("-s", "dev")
    declare(engine, "prod", b={"text_from": [DEV, "aPath"]})
    engine.up("-s", "prod")
    path = str(next(engine.folder.glob("a.*.json")))
    assert engine.files()["b"] == path
    engine.up("--refresh", "--expect-no-changes", "-s", "prod")
    # As the CLI records it: read, and never deleted.
    entries = json.loads(state(engine, "prod"))["checkpoint"]["latest"]["resources"]
    entry = next(each for each in entries if each["type"] == "pulumi:pulumi:StackReference")
    assert (entry["external"], entry["id"], entry["inputs"]) == (True, DEV, {"name": DEV})
    assert entry["outputs"]["outputs"]["aPath"] == path
    made = next(each for each in entries if each["urn"].endswith("::b"))
    assert entry["urn"] in made["propertyDependencies"]["text"]
    refused = engine.refused("destroy", "--yes", "-s", "dev")
    assert "stack dev is in use by prod: " in refused  # F19
    assert sorted(engine.files()) == ["a", "b"]
    for stack in ("prod", "dev"):
        engine.done("destroy", "--yes", "-s", stack)
    assert engine.files() == {}


@pytest.mark.pulumi
@pytest.mark.timeout(240)
def test_the_cli_and_the_engine_read_each_others_outputs(engine, pulumi, pulumi_cli):
    declare(engine, "dev", a={"text": "1", "token": "canary-token"})
    engine.up("-s", "dev")
    declare(engine, "prod", b={"text_from": [DEV, "aPath"]})
    prod = partial(pulumi_cli.done, engine.project, engine.environment, "prod")
    prod("stack init")
    prod("up", "--yes")
    assert engine.files()["b"] == str(next(engine.folder.glob("a.*.json")))
    engine.up("--refresh", "--expect-no-changes", "-s", "prod")
    prod("preview", "--expect-no-changes")
    # For a stack that the CLI wrote.
    pulumi("refresh", "--yes")
    engine.done("preview", "--expect-no-changes", "-s", "prod")


def test_what_cannot_be_read_is_told(engine):
    declare(engine, "prod", b={"text_from": [DEV, "aPath"]})
    output = engine.refused("up", "--yes", "-s", "prod")
    assert f"stack reference '{DEV}': " in output
    assert "has no such stack of project files (there: prod); bring it up first" in output
    declare(engine, "dev", a={"text": "1", "token": "canary-token"})
    engine.up("-s", "dev")
    engine.environment["PULUMI_CONFIG_PASSPHRASE"] = "another"
    declare(engine, "test", b={"text_from": [DEV, "aPath"]})
    output = engine.refused("up", "--yes", "-s", "test")
    with_that_of = "with the passphrase of stack 'test'"
    assert f"stack reference '{DEV}' cannot be read, {with_that_of}: incorrect pass" in output
    assert list(engine.files()) == ["a"]
    declare(engine, "test", b={"text_from": ["of/others/dev", "aPath"]})
    refused = engine.refused("up", "--yes", "-s", "test")
    assert "must be STACK or organization/PROJECT/STACK" in refused
