"""Logging in by SSH, as far as no machine is needed."""

import asyncio

from trainyard.access import ssh_client


def test_an_agent_that_has_ended_is_none(tmp_path, monkeypatch):
    for place in ("", str(tmp_path / "agent")):
        monkeypatch.setenv("SSH_AUTH_SOCK", place)
        assert asyncio.run(ssh_client.open_agent()) is None
