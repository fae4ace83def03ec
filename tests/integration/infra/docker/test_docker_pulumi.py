"""The lab under the pulumi CLI and its docker plugin: taken over from the engine and back."""

from functools import partial

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.pulumi,
    pytest.mark.usefixtures("real_plugins"),
    pytest.mark.timeout(900),
]


def test_the_lab_changes_hands_without_a_change(make_lab, lab, pulumi_cli):
    # Built already: the plugin's builder has a cache of its own and would build them again.
    built = {
        program: lab.container(service).image.tags[0]
        for program, service in (("ray", "ray-head"), ("minio", "minio"))
    }
    images = {**lab.stack.settings["images"], **built}
    other = make_lab(
        workers=1,
        images=images,
        keepData=False,
        objectStore="minio",
        copied=True,
    )
    stack = other.stack
    pulumi = partial(pulumi_cli.done, stack.project, stack.environment, "test")
    stack.engine("up", "--yes")
    pulumi("preview", "--expect-no-changes", "--diff")
    pulumi("refresh", "--yes", "--expect-no-changes")
    pulumi("destroy", "--yes")
    assert other.containers() == {}
    assert other.networks() == other.volumes() == []
    pulumi("up", "--yes")
    stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    assert stack.outputs()["dashboardUrl"] in pulumi("stack output", "--json")
    stack.engine("destroy", "--yes")
    assert other.containers() == {}
    assert other.networks() == other.volumes() == []
