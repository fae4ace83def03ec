"""Secrets are drawn once and stay as they are."""

from cluster.secret import SecretProvider


def test_every_secret_is_another() -> None:
    provider = SecretProvider()
    drawn = {(provider.create({"bytes": 20.0}).outs or {})["value"] for _ in range(10)}
    assert len(drawn) == 10
    assert all(len(value) == 40 for value in drawn)


def test_only_another_length_draws_anew() -> None:
    provider = SecretProvider()
    old = {"bytes": 20, "value": "x"}
    assert not provider.diff("id", old, {"bytes": 20.0, "value": None}).changes
    assert provider.diff("id", old, {"bytes": 32}).replaces == ["bytes"]
