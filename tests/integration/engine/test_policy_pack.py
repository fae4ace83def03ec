"""The policy pack as the pulumi CLI runs it: a program with packages of its own, asked by gRPC."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from engine.structs import to_struct
from infra.operate.policy.rules import ADVISORY, MANDATORY, RULES
from tests import ran
from tests.unit.infra.operate.policy.test_rules import CASES

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PACK = Path(__file__).resolve().parents[3] / "infra/operate/policy"
UV = Path(sys.executable).with_name("uv")
RUDE = """
def no_rude(_role, props):
    \"\"\"Be kind.\"\"\"
    if props.get("text") == "rude":
        yield "is rude"

RULES = (*RULES, Rule(level=MANDATORY, judge=no_rude))
"""
LEVELS = {analyzer_pb2.ADVISORY: ADVISORY, analyzer_pb2.MANDATORY: MANDATORY}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Python with the pack's packages: its protobuf is an older one than ours."""
    folder = tmp_path_factory.mktemp("packages") / "venv"
    for command in (
        ["venv", "--python", sys.executable, folder],
        ["pip", "install", "--require-hashes", "--python", folder, "-r", PACK / "requirements.txt"],
    ):
        done = ran.run([UV, "--quiet", *command])
        if done.returncode:
            pytest.skip(f"pulumi-policy cannot be installed here: {done.stderr[-300:]}")
    return folder / "bin" / "python"


@pytest.fixture
def analyzer(python):
    """Start a pack, and return its client; the pack is ended at the end."""
    started = []

    def start(folder):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        process = subprocess.Popen(
            [python, "-u", "-m", "pulumi.policy", "127.0.0.1:1", folder],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        port = process.stdout.readline().decode().strip()
        assert port.isdigit(), port
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        return analyzer_pb2_grpc.AnalyzerStub(channel)

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def _request(type_, props):
    urn = f"urn:pulumi:dev::trainyard::{type_}::x"
    return analyzer_pb2.AnalyzeRequest(
        type=type_, urn=urn, name="x", properties=to_struct(dict(props))
    )


def test_both_engines_come_to_the_same_verdicts(analyzer):
    pack = analyzer(PACK)
    info = pack.GetAnalyzerInfo(empty_pb2.Empty())
    assert {(each.name, LEVELS[each.enforcementLevel]) for each in info.policies} == {
        (rule.name, rule.level) for rule in RULES
    }
    for _, type_, props, _ in CASES:
        found = pack.Analyze(_request(type_, props)).diagnostics
        assert [
            (each.policyName, LEVELS[each.enforcementLevel], each.message) for each in found
        ] == [
            (rule.name, rule.level, f"{rule.description}\n{message}")
            for rule in RULES
            for message in rule.check(type_, props)
        ], (type_, props)


def test_all_that_the_cli_calls_is_answered(analyzer):
    pack = analyzer(PACK)
    _, type_, props, _ = CASES[0]
    asked = _request(type_, props)
    # Before a resource is analyzed, and once all are registered.
    assert [*pack.Remediate(asked).remediations] == []
    resource = analyzer_pb2.AnalyzerResource(
        type=asked.type, urn=asked.urn, name=asked.name, properties=asked.properties
    )
    stack = analyzer_pb2.AnalyzeStackRequest(resources=[resource])
    assert [*pack.AnalyzeStack(stack).diagnostics] == []


@pytest.mark.pulumi
@pytest.mark.timeout(300)  # five starts of the CLI, four with the pack's own environment
def test_the_cli_makes_nothing_of_what_a_rule_refuses(engine, pulumi, python, tmp_path):
    pack = tmp_path / "pack"
    shutil.copytree(PACK, pack, ignore=shutil.ignore_patterns("__pycache__", ".venv"))
    (pack / ".venv").symlink_to(python.parents[1])
    with (pack / "rules.py").open("a") as rules:
        rules.write(RUDE)
    engine.declare(a={"text": "rude"})
    pulumi("stack init")
    for command in ("preview", "up --yes"):
        with pytest.raises(AssertionError, match=r"no-rude[\s\S]*is rude"):
            pulumi(command, f"--policy-pack={pack}")
    assert engine.files() == {}
    engine.declare(a={"text": "kind"})
    pulumi("up --yes", f"--policy-pack={pack}")
    assert engine.files() == {"a": "kind"}
