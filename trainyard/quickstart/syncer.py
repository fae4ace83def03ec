"""Training on a GPU box that already runs Ray, from the machine that you develop on.

Code goes to the box by Ray's client, results come from it by SFTP. Both use an SSH connection from
this machine: the box needs no key, and no port except SSH's.
"""

import atexit
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from trainyard.access import ssh_run as ssh
from trainyard.access import user
from trainyard.access.ssh import Connection, SshError
from trainyard.access.terminal import clean_lines
from trainyard.client import listing, package, store
from trainyard.client import outputs as contract
from trainyard.client.command import INTERRUPTED
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError
from trainyard.quickstart import on_box, packages, ray_config
from trainyard.quickstart.mirror import Mirror
from trainyard.quickstart.on_stack import StackSyncer
from trainyard.quickstart.packages import Packages
from trainyard.quickstart.ray_config import RayConfig

cloudpickle.register_pickle_by_value(on_box)  # type: ignore[no-untyped-call]
INTERVAL_S = 10.0  # between two looks at the results
COMMAND_S = 60.0
SETUP_S = 3600.0  # packages may be gigabytes
HEARTBEAT_S = 30.0
START_TRIES = 3
NAMESPACE = "trainyard"  # Ray's namespace: a training's name there is the path of its results
NOT_STARTED = "Starting Ray client server failed"  # Ray's message
KNOWN_HOSTS = Path("~/.ssh/known_hosts")
PREFERRED = ("ssh-ed25519", "ecdsa-", "ssh-rsa")


class FailedError(ClientError):
    """The work on the box ended with an error."""


@dataclass(frozen=True)
class Syncer:
    """Runs trainings on a box, and brings their results here."""

    connection: Connection  # to the box
    there: str  # absolute path of the results' folder there
    here: Path  # the results' folder here

    def clean(self, run: str) -> None:
        """Removes the results of a run, on both machines.

        Raises:
            ClientError: it is trained on the box, or its end was not collected.
            SshError: the box cannot be reached, or does not remove them.
            OSError: a file here cannot be removed.
        """
        if self._begun(run):
            raise ClientError(
                f"{run} began earlier and is still on the box, so nothing is removed: start it "
                "without clean_trials to collect it; Ctrl-C then ends it"
            )
        _on(self.connection, f"rm -rf -- {shlex.quote(f'{self.there}/{run}')}")
        if (self.here / run).exists():
            shutil.rmtree(self.here / run)
        say(f"removed earlier results of {run}, here and on {self.connection.name}")

    def run(self, run: str, *work: Any) -> Any:
        """Trains on the box, or waits for a training that began earlier, and brings results here.

        The training is an actor of its own: it continues if this process or the connection ends.
        `work` is for `on_box.fit`.

        Raises:
            ClientError: it failed there, or the results could not be fetched.
        """
        with self.syncing(run), ExitStack() as told:
            try:
                training = self._begun(run)
                if training:
                    say(f"{run} is on the box already: this start waits for it, with its code")
                    told.enter_context(_heartbeat(f"{run} trains on {self.connection.name}"))
                else:
                    options = {"name": self._name(run), "lifetime": "detached", "num_cpus": 0}
                    actor = ray.remote(on_box.Training).options(**options, namespace=NAMESPACE)
                    training = actor.remote(*work)
                found = ray.get(training.fit.remote())
            except KeyboardInterrupt:
                if self._end(run):
                    warn(f"{run} is ended on the box; started again, it goes on from a checkpoint")
                raise
            except ray.exceptions.RayTaskError as error:
                self._end(run)
                raise FailedError(f"the training failed on the box: {_reason(error)}") from None
            except ray.exceptions.RayActorError as error:
                raise FailedError(
                    f"the training was ended on the box ({_reason(error)}): run it again, it goes "
                    "on from its last checkpoint"
                ) from None
            except (ConnectionError, ray.exceptions.RayError) as error:
                raise ClientError(
                    f"the connection to Ray on {self.connection.name} is lost ({_reason(error)}). "
                    f"What trains there goes on: start {run} again to collect it"
                ) from None
        self._end(run)
        return found

    def _name(self, run: str) -> str:
        return f"{self.there}/{run}"

    def _begun(self, run: str) -> Any:
        """The actor of a training that began earlier and was not collected; None without one."""
        try:
            return ray.get_actor(self._name(run), namespace=NAMESPACE)
        except ValueError:
            return None

    def _end(self, run: str) -> bool:
        try:
            if training := self._begun(run):
                ray.kill(training)
        except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
            warn(f"warning: {run} may still be on the box ({_reason(error)}): start it again")
            return False
        return True

    @contextmanager
    def syncing(self, run: str) -> Iterator[None]:
        """Brings the results of a run here, until the block ends and once more then.

        Raises:
            ClientError: the last time failed; the results stay on the box.
        """
        there = f"{self.there}/{run}"
        mirror = Mirror(self.connection, there, self.here / run, say)
        ended = threading.Event()

        def keep_on() -> None:
            told = False
            while not ended.wait(INTERVAL_S):
                try:
                    mirror.pull(last=False)
                    told = False
                except (SshError, OSError) as error:
                    if not told:
                        warn(f"warning: results are not fetched at the moment: {error}")
                    told = True

        thread = threading.Thread(target=keep_on, name="results", daemon=True)
        thread.start()

        def end(*, complete: bool) -> str:
            """Fetches the rest; returns the fault, "" without one.

            Args:
                complete: nothing is written there any more.
            """
            ended.set()
            thread.join()
            try:
                mirror.pull(last=complete)
            except (SshError, OSError) as error:
                box = f"{self.connection.user}@{self.connection.host}"
                return (
                    f"the results stay on the box ({error}); fetch them with: scp -r -P "
                    f"{self.connection.port} {box}:{shlex.quote(there)} "
                    f"{shlex.quote(str(self.here))}"
                )
            return ""

        try:
            yield
        except BaseException as error:  # also Ctrl-C, after which the box still writes
            if fault := end(complete=isinstance(error, FailedError)):
                warn(f"warning: {fault}")
            raise
        if fault := end(complete=True):
            raise ClientError(fault)
        say(f"results of {run}: {self.here / run}")


def initialize_ray_with_syncer(
    base_dir: str | Path,
    src_dir: str | Path,
    config_file: str | Path,
    results_dir: str | Path,
    stack: str | None = None,
) -> Syncer | StackSyncer:
    """Connects to the Ray of a box, with the code and the packages of a project.

    The running Ray is not changed. The connection lasts as long as this process.
    With `stack`, or TRAINYARD_STACK, trainings are jobs of that stack or attached cluster.

    Args:
        base_dir: folder of the project, with its Pipfile or requirements.txt.
        src_dir: folder with the code, which is sent to the box.
        config_file: ray_config.yaml; not read for a stack.
        results_dir: absolute, or below `~`; the same on both machines.
        stack: its name; None is TRAINYARD_STACK, else the box.

    Raises:
        ClientError: a folder or the file is wrong, or the box cannot be used.
        SshError: the box cannot be reached.
    """
    base, source = _folder(base_dir, "base_dir"), _folder(src_dir, "src_dir")
    if stack := stack or os.environ.get(contract.STACK_VARIABLE):
        outputs, wanted = contract.read(stack), packages.required_packages(base)
        store.open_store(outputs)  # results come back through it
        code, env = _packed(source, wanted, ""), _runtime_env(wanted)
        return StackSyncer(outputs, code, env, Path(results_dir).expanduser())
    config = ray_config.read_ray_config(Path(config_file).expanduser())
    _check_user(config)
    connection = _connection(config)
    # Users with commands of their own install where they want to.
    wanted = packages.Packages() if config.setup_commands else packages.required_packages(base)
    code = _packed(source, wanted, connection.private_key)
    env = _runtime_env(wanted)
    say(f"connecting to {connection.name}")
    home = _on(connection, 'printf %s "$HOME"')
    there = _there(str(results_dir), home)
    _on(connection, f"umask 077; mkdir -p -- {shlex.quote(there)}")
    if config.setup_commands:
        _set_up(connection, config, base, home)
    _connect(connection, config, env, code)
    return Syncer(connection, there, Path(results_dir).expanduser())


@contextmanager
def one_message() -> Iterator[None]:
    """Makes one line of a user's error, and ends the process with exit code 1."""
    try:
        yield
    except (ClientError, SshError) as error:
        sys.exit(clean_lines(f"error: {error}"))
    except KeyboardInterrupt:
        warn("interrupted")
        sys.exit(INTERRUPTED)


def _folder(path: str | Path, what: str) -> Path:
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise ClientError(f"{what} {path} is not a folder: give the one of your project")
    return folder


def _check_user(config: RayConfig) -> None:
    """Refuses the file of somebody else: the key and the results are in the home of its user."""
    if config.local_user not in ("", me := user.name()):
        raise ClientError(
            f"driver.user is {config.local_user!r} and you are {me!r} here: set it to {me} in a "
            "ray_config.yaml of your own, with your private_key_file, or leave it out"
        )


def _there(folder: str, home: str) -> str:
    if folder.startswith("~/"):
        return f"{home}/{folder[2:].rstrip('/')}"
    if folder.startswith("/") and folder.strip("/"):
        return folder.rstrip("/")
    raise ClientError(f"results_dir {folder!r} is relative: give one that begins with ~/ or /")


def _connection(config: RayConfig) -> Connection:
    return Connection(
        host=config.host,
        user=config.user,
        host_key=config.host_key or _known_host_key(config),
        port=config.ssh_port,
        private_key=ssh.read_key(config.key_file) if config.key_file else "",
    )


def _known_host_key(config: RayConfig) -> str:
    import asyncssh  # noqa: PLC0415 - slow

    path = KNOWN_HOSTS.expanduser()
    known: list[Any] = []
    if path.is_file():
        known = list(asyncssh.match_known_hosts(str(path), config.host, "", config.ssh_port)[0])
    texts = [key.export_public_key().decode().strip() for key in known]
    for kind in PREFERRED:
        if found := next((text for text in texts if text.startswith(kind)), ""):
            return " ".join(found.split()[:2])
    raise ClientError(
        f"the host key of {config.host} is not in {path}: log in once with "
        f"`ssh -p {config.ssh_port} {config.user}@{config.host}` and compare the fingerprint, or "
        "set worker.host_key in ray_config.yaml"
    )


def _packed(source: Path, wanted: Packages, key: str) -> bytes:
    """The code and the local packages as a zip file.

    Ray's own upload follows links without an end, and waits for FIFOs.
    """
    found = listing.of_folder(source, listing.NEVER_UPLOADED)
    found.files += wanted.uploads
    package.check_upload(str(source), found, [key.strip()] if key else [])
    return package.pack(found)


def _runtime_env(wanted: Packages) -> dict[str, Any]:
    env: dict[str, Any] = {}
    if wanted.lines:
        lines = ", ".join(wanted.lines).replace(packages.UPLOAD, "")
        say(f"Ray installs: {lines}")
        env["pip"] = wanted.lines
    if wanted.variables:
        env["env_vars"] = wanted.variables
    return env


def _set_up(connection: Connection, config: RayConfig, base: Path, home: str) -> None:
    folder = f"{home}{config.base_dir[1:]}" if config.base_dir[0] == "~" else config.base_dir
    _on(connection, f"umask 077; mkdir -p -- {shlex.quote(folder)}")
    for path in packages.files(base):
        ssh.copy(connection, path, f"{folder}/{path.name}", mode=0o600)
    say(f"setup commands on {connection.name}: {'; '.join(config.setup_commands)}")
    script = "\n".join(("set -e", f"cd {shlex.quote(folder)}", *config.setup_commands))
    with _heartbeat("setup commands"):
        # Others on the box can read a command line, but not its input.
        _on(connection, "bash -s", stdin=script, seconds=SETUP_S)


@contextmanager
def _heartbeat(what: str) -> Iterator[None]:
    """Says every half minute that something still runs."""
    began, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not ended.wait(HEARTBEAT_S):
            say(f"{what}: {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _connect(connection: Connection, config: RayConfig, env: dict[str, Any], code: bytes) -> None:
    """Opens Ray's client through SSH, for as long as this process runs."""
    port = config.client_port
    # The head may listen at one of its addresses only, and be known by another one here.
    candidates = f"127.0.0.1 {shlex.quote(config.head)} $(hostname -I 2>/dev/null)"
    if config.head != config.host:
        candidates = shlex.quote(config.head)
    probe = f'timeout 3 bash -c "</dev/tcp/$h/{port}" 2>/dev/null'
    look = f"for h in {candidates}; do if {probe}; then printf %s $h; exit; fi; done; exit 1"
    try:
        head = ssh.run(connection, look, seconds=COMMAND_S)
    except ssh.CommandError:
        raise ClientError(
            f"no Ray answers at {config.head}, port {port}, as seen from {connection.name}: start "
            "it there with `ray start --head`, or correct ray_head in ray_config.yaml"
        ) from None
    with ExitStack() as opened:
        address = opened.enter_context(ssh.forwarded(connection, head, port))
        say(f"connecting to Ray at {head}:{port} through {connection.name}")
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                _heartbeat("Ray prepares the environment on the box"),
            ):
                file = Path(folder, "code.zip")
                file.write_bytes(code)
                _take_client(f"ray://{address}", {**env, "working_dir": str(file)})
        except (RuntimeError, ConnectionError, ValueError, ray.exceptions.RayError) as error:
            raise ClientError(
                f"Ray on {connection.name} does not take this client ({_reason(error)}): it needs "
                f"Ray {ray.__version__} and the Python of this machine, and with a token "
                "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH here"
            ) from None
        opened.callback(ray.shutdown)  # before the way to it is closed
        atexit.register(opened.pop_all().close)


def _take_client(address: str, env: dict[str, Any]) -> None:
    """Has Ray start a server for this client; Ray gives it 30 s, too few for a busy box."""
    for left in reversed(range(START_TRIES)):
        try:
            ray.init(address, runtime_env=env)
        except ConnectionError as error:  # Ray's, with the text of the server's RuntimeError
            if not left or NOT_STARTED not in str(error):
                raise
            say("Ray's server for this client did not start in time: trying again")
        else:
            return


def _on(
    connection: Connection, command: str, *, stdin: str = "", seconds: float = COMMAND_S
) -> str:
    return ssh.run(connection, command, stdin=stdin, seconds=seconds)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__
