"""The simulated month: each rule ends all jobs, FIFO in order, and the picture is whole."""

from xml.etree import ElementTree as ET

from bench import queue_month


def test_each_rule_starts_all_jobs_of_two_days_and_all_are_drawn():
    jobs = queue_month.month(days=2)
    found = {name: queue_month.run(jobs, rule, days=2) for name, rule in queue_month.RULES.items()}
    for each in found.values():
        assert each.waits.keys() == {job.name for job in jobs}
        assert min(each.waits.values()) >= 0
        assert 0.3 < sum(each.busy) / 2 <= 1
    strict = found["FIFO, strict"].waits
    begun = [job.came + strict[job.name] for job in jobs]
    assert begun == sorted(begun)
    assert len(queue_month.table(jobs, found).splitlines()) == len(queue_month.RULES) + 2
    texts = "".join(ET.fromstring(queue_month.svg(found)).itertext())
    assert all(name in texts for name in queue_month.RULES)
