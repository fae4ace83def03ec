"""Files that people write: what passes a bound is one message, and takes little memory."""

import json
import sys

import pytest

from tests import ran
from trainyard.access import settings_file
from trainyard.access.settings_file import EXPANDED, FILE_CHARACTERS, TEXT, VALUE, SettingsError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
TEXTS = f"a: &a [{', '.join(['&t ' + 'x' * 60_000, *['*t'] * 9])}]\nb: [*a, *a]\n"
MERGED = "a: &a {k: v}\nb: &b {<<: [*a, *a]}\nc: &c {<<: [*b, *b, *a], d: [*b, {<<: *a, k: w}]}\n"
# Refuses a file, in 64 MiB more than an idle process has.
READER = """
import resource, sys
from pathlib import Path
from engine.errors import EngineError
from engine.project import Project, read_settings
project = Project.find(Path(sys.argv[1]))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, [used + 2**26] * 2)
try:
    print(len(read_settings(project, "dev").config))
except EngineError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, f"line 5, .* it has more than {EXPANDED // VALUE} values or {EXPANDED} characters"),
        (TEXTS, f"line 2, .* more than {EXPANDED // VALUE} values or {EXPANDED} characters"),
        ("a: &a [1, *a]", "line 1, .* a part of it is an alias of the whole"),
        ("a: &a {b: {c: *a}}", "a part of it is an alias of the whole"),
        ("a: 1\nb: {c: 1, 'c': 2}", "line 2, .*the key 'c' is there twice: remove one"),
        ('a: {1: x, "1": y}', "the key .1. is there twice"),
        ('{"a": 1, "a": 1}', "the key 'a' is there twice"),
        ("a: &a {b: 1}\nc: {<<: *a, <<: *a}", "the key '<<' is there twice"),
        (f"a: [b, {'x' * (TEXT + 1)}]", f"a.1 has {TEXT + 1} characters, and a value at most"),
        ('{"owner": "\\u0000"}', r"owner has the character '\\x00': remove it"),
        ('{"a": {"b\\u0000": 1}}', r"a key of a has the character '\\x00'"),
        ('a: {"b": "\\udc80"}', "line 1, is not valid YAML: .* invalid Unicode character"),
        ("[" * 70 + "]" * 70, "more than 64 deep"),
        ("[" * 100_000, "maximum recursion depth"),
        ("- 1\n" * 200_000, f"line [0-9]+, .* more than {EXPANDED // VALUE} values"),
        ("#" * (FILE_CHARACTERS + 1), f"has more than {FILE_CHARACTERS} characters"),
    ],
)
def test_what_passes_a_bound_is_one_message(text, told):  # F67
    with pytest.raises(SettingsError, match=rf"^a\.yaml.*{told}"):
        settings_file.load(text, "a.yaml")


def test_what_is_within_bounds_is_read_as_ever(tmp_path):
    found = settings_file.load(MERGED, "a.yaml")
    assert found["c"] == {"k": "v", "d": [{"k": "v"}, {"k": "w"}]}
    assert settings_file.load('{"a": "ä😀\\n", "b": [1, null]}', "a.json") == {
        "a": "ä😀\n",
        "b": [1, None],
    }
    assert settings_file.load("", "a.yaml") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, "Pulumi.dev.yaml, line 6,"),
        ("a:\n" + "- 1\n" * 150_000, "Pulumi.dev.yaml, line"),
        (json.dumps({f"k{n}": n for n in range(EXPANDED // VALUE // 2 - 5_000)}), "11384"),
    ],
)
def test_settings_take_little_memory(tmp_path, text, told):  # F67
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  " + text.replace("\n", "\n  "))
    done = ran.run([sys.executable, "-c", READER, str(tmp_path)])
    assert done.stdout.startswith(told), done.stdout + done.stderr
