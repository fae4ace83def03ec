"""P17: from a save to the first line of the job in a `train dev`, next to `ray job submit`.

Both run the same script in equal folders of 90 MB on the same warm cluster. Each time one byte of
the folder's one large file changes. The bytes that a save sends are bounded as well.

The whole loop is from a save of a training of 3 s, by one worker of Ray Train, until it has ended.
"""

import contextlib
import random
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.form import Form
from bench.measure import FailedError, Ratio, in_turn
from bench.scratch import ScratchStack

ROUNDS, LOOPS = 10, 3
LOOP_SECONDS = 6.0
TREE_BYTES = 90_000_000
SENT_BYTES = 64_000  # at most
END_SECONDS = 60.0
RUN_FAILED = re.compile(r"run \d+ failed ")
SCRIPT = """\
import pathlib
print("first line", pathlib.Path("data").read_bytes()[:8].hex(), flush=True)
"""
TRAINING = """\
import time
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

def train():
    end = time.monotonic() + 3
    while time.monotonic() < end:
        time.sleep(0.1)

TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1)).fit()
"""


def run(form: Form) -> list[Ratio]:
    """Return the ratios."""
    with form.stack() as stack, tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / each for each in ("session", "submissions")]
        content = random.Random(1).randbytes(form.pick(TREE_BYTES, 1_000_000))  # noqa: S311 - no secret
        for folder in folders:
            folder.mkdir()
            (folder / "job.py").write_text(SCRIPT)
            (folder / "data").write_bytes(content)
        plain, environment = stack.plain_submit(
            Path(name), "--working-dir", str(folders[1]), "--", "python", "job.py"
        )
        sent: list[float] = []
        with _session(stack, folders[0]) as session:

            def save() -> float:
                begun = time.perf_counter()
                _edit(folders[0] / "data", len(sent))
                took, said = _first_line(session, begun)
                said += _read(session, "succeeded")
                sent.append(float(re.findall(r"saved: (\d+) bytes", said)[-1]))
                return took

            def submit() -> float:
                begun = time.perf_counter()
                _edit(folders[1] / "data", len(sent))
                process = subprocess.Popen(
                    plain,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                took, _ = _first_line(process, begun)
                _read(process, "succeeded")
                process.wait()
                return took

            ours, theirs = in_turn(form.rounds(ROUNDS), save, submit)

        file = folders[0] / "job.py"
        file.write_text(TRAINING)
        with _session(stack, folders[0]) as training:

            def loop() -> float:
                begun = time.perf_counter()
                file.write_text(f"{file.read_text()}\n")
                _read(training, "succeeded")
                return time.perf_counter() - begun

            [loops] = in_turn(form.rounds(LOOPS), loop)
    bound = [float(SENT_BYTES)] * len(sent)
    return [
        Ratio(name="P17 save", ours=ours, plain=theirs, unit="s", goal=0.3),
        Ratio(name="P17 sent by a save", ours=sent, plain=bound, unit="bytes", goal=1.0),
        Ratio(name="P17 loop", ours=loops, plain=[LOOP_SECONDS], unit="s", goal=1.0),
    ]


@contextlib.contextmanager
def _session(stack: ScratchStack, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A `train dev` of the folder's job.py, which has succeeded once."""
    process = subprocess.Popen(
        stack.train("dev", folder / "job.py"),
        env=stack.environment | {"PYTHONUNBUFFERED": "1"},
        cwd=stack.project,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _read(process, "run 1 succeeded")
        yield process
    finally:
        _end(process)


def _end(session: subprocess.Popen[str]) -> None:
    """End a `train dev` as Ctrl-C does.

    Raises:
        FailedError: it keeps running.
    """
    session.send_signal(signal.SIGINT)
    try:
        session.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        session.kill()
        said, _ = session.communicate()
        raise FailedError(
            f"`train dev` has not ended {END_SECONDS:.0f} s after Ctrl-C:\n{said}"
        ) from None


def _edit(data: Path, at: int) -> None:
    with data.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def _first_line(process: subprocess.Popen[str], begun: float) -> tuple[float, str]:
    said = _read(process, "first line")
    return time.perf_counter() - begun, said


def _read(process: subprocess.Popen[str], text: str) -> str:
    """Return a process's output up to the line that holds a text.

    Raises:
        FailedError: it ends before, or says that a run has failed.
    """
    assert process.stdout is not None  # noqa: S101 Popen was given PIPE
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
        if RUN_FAILED.match(line):  # Ray's own lines may have the word, too
            break
    raise FailedError(f"{text!r} was not said:\n{said}")
