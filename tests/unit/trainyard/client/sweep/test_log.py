from trainyard.client.console import LogWriter
from trainyard.client.sweep.log import Prefixed


def test_each_line_has_its_prefix(capsys):
    writer = LogWriter(Prefixed("[3]"))
    writer.write("one\ntw")
    writer.write("o\nrest")
    writer.close()
    assert capsys.readouterr().out == "[3] one\n[3] two\n[3] rest\n"
