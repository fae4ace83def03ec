"""The engine's docker provider and the real plugin take over each other's stacks."""

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.pulumi,
    pytest.mark.usefixtures("real_plugins"),
    pytest.mark.timeout(300),
]


def _unchanged(stack, pulumi):
    """Neither finds anything to do, with and without a refresh."""
    before = stack.ids()
    pulumi("preview", "--expect-no-changes", "--diff")
    pulumi("preview", "--refresh", "--expect-no-changes", "--diff")
    stack.up("--refresh", "--expect-no-changes", "--diff")
    assert stack.ids() == before


def _unchanged_by_writing(stack, pulumi):
    """Nor after the other has written the state."""
    before = stack.ids()
    pulumi("refresh", "--yes", "--expect-no-changes", "--diff")
    stack.up("--refresh", "--expect-no-changes", "--diff")
    pulumi("up", "--yes", "--expect-no-changes", "--diff")
    stack.up("--expect-no-changes", "--diff")
    assert stack.ids() == before


def test_the_plugin_sees_no_change_after_the_engine(stack, pulumi):
    stack.up()
    _unchanged(stack, pulumi)
    _unchanged_by_writing(stack, pulumi)
    stack.up(restart="always", memory=64, interval="2s", tag="2")
    _unchanged(stack, pulumi)
    stack.container("plain").kill()
    stack.done("refresh", "--yes")
    assert "1 to update" in pulumi("preview")
    stack.up()
    _unchanged(stack, pulumi)
    pulumi("destroy", "--yes")
    assert stack.ids() == {}
    assert stack.others() == set()


def test_the_engine_sees_no_change_after_the_plugin(stack, pulumi):
    pulumi("stack init")
    pulumi("up", "--yes")
    _unchanged(stack, pulumi)
    _unchanged_by_writing(stack, pulumi)
    stack.declare(restart="always", memory=64, interval="2s", tag="2")
    pulumi("up", "--yes")
    _unchanged(stack, pulumi)
    stack.container("plain").kill()
    stack.container("web").kill()
    pulumi("refresh", "--yes")
    output = stack.up()
    # Like the plugin: it records no ports of a stopped container, and they need a new one.
    assert "web replace done" in output
    assert "plain update done" in output
    _unchanged(stack, pulumi)
    stack.done("destroy", "--yes")
    assert stack.ids() == {}
    assert stack.others() == set()
