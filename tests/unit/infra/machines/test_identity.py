import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.machines import identity
from infra.machines.identity import Mark

ID = "0a1b2c3d"
BACKEND = "4567cdef"


@given(project=st.text(max_size=80), stack=st.text(max_size=80))
@example(project="p" * 80, stack="s")
@example(project="p", stack="deadbeef")
@example(project="p", stack="deadbeef-on-deadbeef")
@example(project="p", stack="deadbeef-on")
def test_the_ids_survive_in_a_name(project, stack):  # F46
    mark = Mark(stack=ID, backend=BACKEND)
    name = identity.resource_name(f"{project}-{stack}", mark, "asia-northeast-1")
    assert len(name) <= 64  # what the API takes
    assert identity.mark_in_name(name) == mark


@pytest.mark.parametrize(
    "name",
    [
        *("", "trainyard", "global", f"trainyard-p-{ID}-us-east-1", "trainyard-a-b-c"),
        *(f"other-{ID}-on-{BACKEND}", f"my-trainyard-x-{ID}-on-{BACKEND}"),
    ],
)
def test_other_names_are_not_ours(name):
    assert identity.mark_in_name(name) == Mark()


@pytest.mark.parametrize("generated", [True, False])
def test_a_key_says_who_put_it_there(generated):
    mark = Mark(stack=ID, backend=BACKEND, generated=generated)
    assert identity.mark_in_key(f"ssh-ed25519 AAAA {identity.key_comment(mark)}") == mark


def test_keys_of_others():
    for comment in ("", " me@laptop", f" trainyard:{ID}", f" trainyard:{ID}@{ID}0", " trainyard:"):
        assert identity.mark_in_key(f"ssh-ed25519 AAAA{comment}") == Mark()


def test_instances_of_a_stack_share_their_tags():  # F46
    assert identity.tags(project="p", stack="s", owner="o", backend=BACKEND) == {
        "trainyard:project": "p",
        "trainyard:stack": "s",
        "trainyard:owner": "o",
        "trainyard:backend": BACKEND,
    }


def test_an_empty_id_is_nobodys():
    assert not identity.is_of({}, "")
    assert not identity.is_of({identity.ID: ""}, "")
    assert identity.is_of({identity.ID: ID}, ID)
    assert not identity.is_of({identity.ID: BACKEND}, ID)
