"""Values that are known at once stay so; others become outputs."""

import pulumi
import pytest

from cluster.inputs import join, lift


def test_what_is_known_is_no_output():
    assert lift(lambda a, b: a + b, 1, 2) == 3
    assert join("http://", "127.0.0.1", ":80") == "http://127.0.0.1:80"


@pytest.mark.usefixtures("recorded")
def test_one_output_makes_the_whole_an_output():
    found: list[object] = []

    @pulumi.runtime.test
    def program() -> pulumi.Output[None]:
        text = join("http://", pulumi.Output.from_input("10.0.0.4"), ":80")
        total = lift(max, 1, pulumi.Output.secret(3))
        assert isinstance(text, pulumi.Output)

        async def look() -> None:
            found.extend([await text.future(), await total.future(), await total.is_secret()])

        return pulumi.Output.from_input(look())

    program()
    assert found == ["http://10.0.0.4:80", 3, True]
