"""The cluster of a launch: a stack that is chosen, or a Ray that the environment names."""

from hydra_plugins.ray_launcher import _launching as launching
from trainyard.client.sweep.queueing import LetGoError

CHOSEN = {"stack": None, "outputs": None}


def test_a_chosen_stack_goes_before_the_environment(monkeypatch, capsys):  # B5 B18 B19
    for name in ("TRAINYARD_STACK", "TRAINYARD_OUTPUTS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_IP", "192.0.2.7")
    url = launching._other_ray(CHOSEN)
    assert url == "http://192.0.2.7:8265"
    config = launching.DictConfig({"hydra": {"sweep": {"dir": "sweep"}}})
    for address, said in (
        (url, f"`ray job logs -f --address {url} job_1`; stop: `ray job stop --address {url} job"),
        ("", "train logs -f job_1"),
    ):
        launching._tell_how_to_go_on(LetGoError(["job_1"], 2), config, address)
        assert said in capsys.readouterr().out
    for chosen in ({"stack": "dev"}, {"outputs": "outputs.json"}):
        assert launching._other_ray(CHOSEN | chosen) == ""
    for name in ("TRAINYARD_STACK", "TRAINYARD_OUTPUTS"):
        with monkeypatch.context() as only:
            only.setenv(name, "dev")
            assert launching._other_ray(CHOSEN) == ""
