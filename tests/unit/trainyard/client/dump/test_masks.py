"""A secret is hidden however it is written, and what is none stays."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import secret_hunt
from trainyard.client.dump import masks
from trainyard.client.dump.masks import HIDDEN, Masks

SECRET = "s3cret/with+odd=chars&of-30-length"
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{'b3BlbnNzaC1' * 6}\n-----END OPENSSH PRIVATE KEY-----"


@given(
    st.text(alphabet=st.characters(codec="ascii", min_codepoint=33), min_size=12, max_size=40),
    st.text(max_size=20),
)
def test_no_form_of_a_secret_is_left(secret, beside):  # F35
    written = [form.decode() for form in secret_hunt.forms(secret)]
    coded = base64.b64encode(f"{beside}{secret}{beside}".encode()).decode()
    text = "\n".join([beside + secret + beside, *written, coded, json.dumps({"a": secret})])
    hidden = Masks([secret]).hide(text)
    assert secret_hunt.finds({"it": secret}, [("text", hidden.encode())]) == []


def test_the_whole_run_of_base64_that_holds_one_is_hidden():
    coded = base64.b64encode(f"user:{SECRET}:end".encode()).decode()
    assert Masks([SECRET]).hide(f"a {coded} b {coded}") == f"a {HIDDEN} b {HIDDEN}"


def test_of_the_secret_texts_of_a_state_long_words_are_hidden_and_names_stay():  # F35
    state = ["[user]\nkey = Ab0123456789-0123456789\nname = training", "objectstore", "Pa55word"]
    hide = Masks([], state).hide
    assert hide("key Ab0123456789-0123456789 of training") == f"key {HIDDEN} of training"
    assert hide("objectstore and Pa55word") == f"objectstore and {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (KEY, HIDDEN),
        ("'Authorization': 'Bearer abc'}", f"'Authorization': '{HIDDEN}"),
        ("X: Bearer abcdefgh12345", f"X: Bearer {HIDDEN}"),
        ("https://ada:pw@host/x", f"https://{HIDDEN}@host/x"),
        ("--api-token=abcd1234 next", f"--api-token={HIDDEN} next"),
        ('"secretKey": "abcd", "x": 1', f'"secretKey": "{HIDDEN}", "x": 1'),
        ("?X-Amz-Signature=abcdef&a=b", f"?X-Amz-Signature={HIDDEN}&a=b"),
        ("hf_abcdefghijklmnopqrst", HIDDEN),
        ("epoch 3, loss 0.25, 40 tokens/s", "epoch 3, loss 0.25, 40 tokens/s"),
        ("s3://ray/first http://127.0.0.1:8265/#/jobs", None),
    ],
)
def test_what_looks_like_a_secret_is_hidden_too(text, hidden):  # F35
    assert Masks([]).hide(text) == (text if hidden is None else hidden)


def test_variables_of_this_process_and_of_jobs_are_secrets_by_their_names(monkeypatch):  # F35
    for name, value in {"MY_API_KEY": "a-one", "aws_secret_access_key": "a-two"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KEYS_OF", "a-three")
    assert Masks([]).hide("a-one a-two a-three") == f"{HIDDEN} {HIDDEN} a-three"
    job = [{"runtime_env": {"env_vars": {"WANDB": "x"}, "pip": ["a"]}, "env_vars": None}]
    kept = [{"runtime_env": {"env_vars": HIDDEN, "pip": ["a"]}, "env_vars": HIDDEN}]
    assert masks.without_variables(job) == kept
