"""The commands of the pages for containers, on the lab that tests share."""

import pytest

from tests.pages import blocks_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(("page", "blocks"), blocks_of("docker").items())
def test_the_commands_of_a_page(page, blocks, lab):
    user = lab.stack.terminal("lab")
    nodes = ("ray-head", "ray-worker-0", "ray-worker-1")
    user.instead = {**user.instead, **{name: lab.prefix + name for name in nodes}}
    for block in blocks:
        user.run(block)
