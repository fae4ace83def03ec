"""An API that loses replies, refuses and breaks: one instance a node, and none left.

Waits and repetitions are in the unit tests; these show what a state keeps for the next command.
"""

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("command", ["up", "destroy"])
def test_a_launch_lost_twice_is_found_by_the_next_command(rented, cloud, command):  # F5
    rented.declare(count=1)
    cloud.faults.drop("launch", commit=False)
    cloud.faults.drop("launch", commit=True)
    assert "looking for the instance" in rented.failed("up")
    assert rented.recorded() == set()
    assert len(rented.live()) == 1
    told = {"up": "Taking over instance", "destroy": "of this stack, but in no state"}
    assert told[command] in rented.done(command)
    assert rented.live() == rented.recorded()
    assert len(rented.live()) == (command == "up")
    assert len(cloud.account.launched) == 1


def test_an_instance_that_does_not_come_up_is_ended(rented, cloud):  # F7, A16
    rented.declare(timeoutMinutes="0.05")
    cloud.account.boots = ["active", "stuck"]
    text = rented.failed("up")
    dead = cloud.account.launched[1]
    assert f"instance {dead} (" in text
    assert "Run up with --refresh" in text
    assert f"Instance {dead} in booting status" in text
    assert rented.live() == {cloud.account.launched[0]}
    assert len(rented.recorded()) == 2  # the id was there before the wait
    rented.done("up", "--refresh")
    assert rented.live() == rented.recorded()
    assert cloud.account.launched[0] in rented.live()
