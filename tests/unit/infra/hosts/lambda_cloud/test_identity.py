import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.hosts.lambda_cloud import identity

ID = "0a1b2c3d"


@given(project=st.text(max_size=80), stack=st.text(max_size=80))
@example(project="p", stack="deadbeef")
def test_the_id_survives_in_a_name(project, stack):
    name = identity.resource_name(
        project=project, stack=stack, stack_id=ID, suffix="asia-northeast-1"
    )
    assert len(name) <= identity.NAME_LIMIT
    assert identity.id_in_name(name) == ID


@pytest.mark.parametrize(
    "name", ["", "trainyard", "global", f"other-{ID}", f"my-trainyard-x-{ID}", "trainyard-a-b-c"]
)
def test_other_names_are_not_ours(name):
    assert identity.id_in_name(name) == ""


def test_a_key_says_who_put_it_there():
    public = f"ssh-ed25519 AAAA {identity.key_comment(ID, generated=True)}"
    assert identity.id_in_key(public) == ID
    assert identity.id_in_key(f"ssh-ed25519 AAAA {identity.key_comment(ID, generated=False)}") == ID
    assert identity.id_in_key("ssh-ed25519 AAAA me@laptop") == ""


@given(st.text(min_size=1))
def test_an_owner_fits_a_tag(setting):  # F39
    owner = identity.owner(setting)
    assert 0 < len(owner) <= identity.TAG_LIMIT
    assert all(character.isalnum() or character in "@._-" for character in owner)
    assert owner.isascii()


def test_the_owner_is_user_and_machine(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "ann lee")
    monkeypatch.setattr("socket.gethostname", lambda: "lab")
    assert identity.owner() == "ann-lee@lab"


def test_an_empty_id_is_nobodys():
    assert not identity.is_of({}, "")
    assert not identity.is_of({identity.ID: ""}, "")
    assert identity.is_of({identity.ID: ID}, ID)
