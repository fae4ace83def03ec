"""The resources of the process runtime, on their machine.

Knows nothing of Pulumi: it runs in a provider here, and on another machine as `agent.py` there.
Each kind has the methods of a provider, with properties in and out; `read` and `find` return None
if nothing is there.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

from node import claims, ending, folders, life, owned_processes, process_health
from node import ports as port_check
from node.folders import FolderMark, write_private
from node.life import ServiceError
from node.process_health import ProgramDriver
from node.supervisor import CODE, Definition, Supervisor, inherited_environment, tail

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # a variable of the processes of a job, by Ray
# To ask for users, and on top of the time that they may take: Ray loads slowly on a busy machine.
ASK_SECONDS = 180.0
RESTARTING = ("command", "environment", "files", "secrets", "folders", "stopSeconds")

Props = dict[str, Any]


class Kind(Protocol):
    """One kind of resource."""

    def create(self, props: Props) -> tuple[str, Props]:
        """Make it; return its id and outputs."""

    def read(self, id_: str, props: Props) -> Props | None:
        """Return its outputs."""

    def fault(self, _id: str, _props: Props) -> str:
        """Return what is wrong with it now, "" if nothing is."""
        return ""

    def update(self, _olds: Props, news: Props) -> Props:
        """Change it; return its new outputs."""
        return self.create(news)[1]

    def delete(self, id_: str, props: Props) -> str:
        """Remove it; return a note for the user, or ""."""

    def find(self, _props: Props) -> tuple[str, Props] | None:
        """Return the leftovers of an interrupted create, unless another create takes them over."""
        return None


class Data(Kind):
    """The folder of data that outlives the stack; it may be a link to one on another disk.

    A stack makes it first on a machine and removes it last: it claims the ports.
    """

    def create(self, props: Props) -> tuple[str, Props]:
        """Claim the ports; make the folder, or take over the one of an earlier stack."""
        claims.take(_mark(props), port_check.new_ports({}, props["ports"]), folder=props["folder"])
        folders.take(Path(props["folder"]), _mark(props), "dataDir", private=False)
        return props["folder"], props

    def read(self, id_: str, props: Props) -> Props | None:
        """Look whether the folder is there, and the stack's, and whether its ports are claimed."""
        if folders.foreign(Path(id_), _mark(props), private=False):
            return None
        return props if claims.has(_mark(props).id) else {**props, "ports": {}}

    def update(self, olds: Props, news: Props) -> Props:
        """Note whether the folder is kept.

        Raises:
            ServiceError: another object store would replace the running one.
        """
        before, after = olds.get("store", ""), news.get("store", "")
        where = f"{news['folder']}/{before}"
        if text := life.other_store(before, after, where, "they stay there"):
            raise ServiceError(text)
        return super().update(olds, news)

    def delete(self, _id: str, props: Props) -> str:
        """Remove the folder, or say where it is kept and give it back to any later stack."""
        folder, mark = Path(props["folder"]), _mark(props)
        claims.release(mark.id)
        if props["keep"] and any(
            path.is_file() and path.name != folders.FILE for path in folder.rglob("*")
        ):
            folders.give_back(folder, mark)
            return f"kept: {folder} (setting keepData; remove it when you no longer need it)"
        # A folder to be kept holds only folders here: nothing to keep.
        return folders.remove(folder, mark, private=False)


class Daemon(Kind):
    """supervisord itself."""

    def create(self, props: Props) -> tuple[str, Props]:
        """Start supervisord, or take over the one that an interrupted create left."""
        daemon = _daemon(props)
        known = daemon.refuse()
        if not daemon.alive():
            # Programs of a killed supervisord would hold the ports, and a supervisord whose folder
            # somebody removed would run all services a second time.
            daemon.sweep()
            port_check.refuse_held(port_check.new_ports({}, props["ports"]))
        daemon.start(known=known)
        if reservation := props.get("reservation"):
            _tell(daemon, reservation, props["mark"])
        return props["folder"], {**props, "healthy": True}

    def read(self, _id: str, props: Props) -> Props | None:
        """Ask supervisord, and look whether its timer runs; it is gone if its folder is."""
        daemon = _daemon(props)
        if daemon.distrust():
            return None
        if self.fault(_id, props):
            return {**props, "healthy": False}
        if props.get("reservation") and not daemon.running(ending.NAME):
            return {**props, "reservation": None}
        return props if props.get("healthy", True) else {**props, "healthy": True}

    def fault(self, _id: str, props: Props) -> str:
        daemon = _daemon(props)
        return "" if daemon.alive() else process_health.no_answer_error(daemon)

    def log(self, lines: int, props: Props) -> list[str]:
        """Return the last lines of supervisord's own log."""
        return tail(Path(props["folder"]) / "supervisord.log", lines)

    def users(self, props: Props) -> list[str]:
        """Return the jobs that a killed supervisord has left running: another one ends them."""
        daemon, jobs = _daemon(props), set[psutil.Process]()
        if not daemon.alive():
            for process in owned_processes.of_supervisord(daemon.url, daemon.mark):
                with suppress(psutil.Error):
                    jobs |= {process} if JOB in process.environ() else set()
        return [f"process {each.pid}" for each in jobs if each.parent() not in jobs]

    def elsewhere(self, props: Props) -> str:
        """Return the path of another checkout that runs it, "" if there is none or it is gone."""
        found = _daemon(props).checkout()
        return str(found) if found and found.is_dir() and not found.samefile(CODE) else ""

    def taken(self, olds: Props, news: Props) -> str:
        """Return the new ports that others hold or have claimed, "" for none; only looks.

        What a preview cannot know is not used. A new stack has no recorded properties.
        """
        new = port_check.new_ports(olds.get("ports", {}), news["ports"])
        if not new:
            return ""
        if claimed := claims.conflicts(_mark(news).id, new):
            return "\n".join(claimed)
        daemon = _daemon({key: value for key, value in news.items() if key != "data"})
        if not olds and daemon.alive():  # an interrupted create has left it
            return ""
        # A create ends the programs of a killed supervisord.
        own = {process.pid for process in owned_processes.of_supervisord(daemon.url, daemon.mark)}
        lines = port_check.describe_listening(new, own)
        return "\n".join([*lines, port_check.advice()]) if lines else ""

    def update(self, olds: Props, news: Props) -> Props:
        """Check the new ports, and set the end; start a killed supervisord again."""
        if not _daemon(news).alive():
            return self.create(news)[1]
        port_check.refuse_held(port_check.new_ports(olds.get("ports", {}), news["ports"]))
        if olds.get("reservation") != news.get("reservation"):
            _tell(_daemon(news), news.get("reservation"), news["mark"])
        return {**news, "healthy": True}

    def delete(self, _id: str, props: Props) -> str:
        """End supervisord and all its processes, and remove its folder."""
        return _daemon(props).stop()

    def find(self, props: Props) -> tuple[str, Props] | None:
        """Return the supervisord that an interrupted create left behind."""
        daemon = _daemon(props)
        if not daemon.alive():
            return None
        told = not props.get("reservation") or daemon.running(ending.NAME)
        return props["folder"], props if told else {**props, "reservation": None}


class Program(Kind):
    """One program of a supervisord."""

    def create(self, props: Props) -> tuple[str, Props]:
        """Start the program and wait until it answers; remove it if it does not."""
        daemon, definition = _daemon(props), _definition(props)
        try:
            if not (daemon.matches(definition) and _stands(daemon, definition)):
                _begin(daemon, definition, props)
            life.await_up(ProgramDriver(daemon, props), float(props["startTimeout"]))
        except Exception:
            daemon.remove(definition.name)
            raise
        return definition.name, {**props, "healthy": True}

    def read(self, _id: str, props: Props) -> Props | None:
        """Look whether it is healthy; it is gone if its files were changed or removed."""
        if not _daemon(props).matches(_definition(props)):
            return None
        return {**props, "healthy": not self.fault(_id, props)}

    def fault(self, _id: str, props: Props) -> str:
        return life.fault(ProgramDriver(_daemon(props), props))

    def log(self, lines: int, props: Props) -> list[str]:
        return ProgramDriver(_daemon(props), props).log(lines)

    def update(self, olds: Props, news: Props) -> Props:
        """Restart the program if it differs, and wait until it answers."""
        daemon, definition = _daemon(news), _definition(news)
        differs = any(olds.get(key) != news.get(key) for key in RESTARTING)
        if differs or not _stands(daemon, definition):
            _begin(daemon, definition, news)
        # A program that fails its update stays: there is no earlier one to return to.
        life.await_up(ProgramDriver(daemon, news), float(news["startTimeout"]))
        return {**news, "healthy": True}

    def users(self, props: Props) -> list[str]:
        """Return the users that would lose work if the program restarted."""
        if not _daemon(props).running(props["name"]):
            return []
        return [str(user) for user in json.loads(_ask_to_leave(props, ASK_SECONDS, "users"))]

    def drain(self, seconds: int, props: Props) -> None:
        """Make its users leave, and wait for it."""
        _ask_to_leave(props, seconds + ASK_SECONDS, "drain", str(seconds))

    def delete(self, id_: str, props: Props) -> str:
        """Stop the program and all its processes, and remove its files."""
        _daemon(props).remove(id_)
        return ""

    def find(self, props: Props) -> tuple[str, Props] | None:
        """Return the program that an interrupted create left behind, up or not.

        One that is not up yet is marked, so that the next update waits for it.
        """
        daemon = _daemon(props)
        written = not daemon.distrust() and (daemon.folder / props["name"]).exists()
        if not written and not daemon.running(props["name"]):
            return None
        return props["name"], {**props, "healthy": False}


class Files(Kind):
    """Secret files of programs that the stack does not run, in the folder of a supervisord."""

    def create(self, props: Props) -> tuple[str, Props]:
        """Write them.

        Raises:
            ServiceError: the folder is not the stack's.
        """
        daemon = _daemon(props)
        if reason := daemon.distrust():
            raise ServiceError(
                f"{daemon.folder} {reason}. Run `up` with --refresh to have the stack make its own"
            )
        folder = daemon.folder / props["name"] / "files"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name not in props["secrets"]:
                path.unlink()
        for name, content in props["secrets"].items():
            write_private(folder / name, content)
        return str(folder), props

    def read(self, id_: str, props: Props) -> Props | None:
        whole = all(_content(Path(id_) / name) == text for name, text in props["secrets"].items())
        return props if whole and not _daemon(props).distrust() else None

    def delete(self, id_: str, props: Props) -> str:
        """Remove them, and end what Ray's launcher started: `ray down` forgets workers."""
        daemon = _daemon(props)
        owned_processes.end(lambda: owned_processes.of_no_supervisord(daemon.mark), daemon.folder)
        if not daemon.distrust():
            shutil.rmtree(Path(id_).parent, ignore_errors=True)
        return ""


KINDS: dict[str, Kind] = {
    "data": Data(),
    "daemon": Daemon(),
    "program": Program(),
    "files": Files(),
}


def _content(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _daemon(props: Props) -> Supervisor:
    return Supervisor(
        folder=Path(props["folder"]),
        identifier=props.get("identifier", "trainyard"),
        mark=_mark(props),
        data=Path(props["data"]) if "data" in props else None,
    )


def _tell(daemon: Supervisor, reservation: Props | None, mark: Props) -> None:
    """Have a supervisord end at another time, or never; see `ending.py` for the timer's settings.

    Programs end unless it has `ends`.
    """
    if not reservation:
        daemon.remove(ending.NAME)
        return
    settings = {"ends": "programs", **reservation, "folder": str(daemon.folder), "mark": mark}
    environment = {"PYTHONPATH": str(CODE)}
    if settings["ends"] == "containers":
        ending.Containers(settings).resume()
        environment |= {name: os.environ[name] for name in os.environ if name.startswith("DOCKER_")}
    file = str(daemon.folder / ending.NAME / "files" / "settings.json")
    daemon.add(
        Definition(
            name=ending.NAME,
            command=[sys.executable, "-P", "-m", ending.__name__, "wait", file],
            environment=environment,
            files={"settings.json": json.dumps(settings)},
            folders=[],
            stop_seconds=0,
        )
    )


def _mark(props: Props) -> FolderMark:
    return FolderMark.of(props["mark"])


def _ask_to_leave(props: Props, seconds: float, *arguments: str) -> str:
    """Run a program's script for its users; return its last line."""
    leave = props["leave"]
    script = Path(props["folder"]) / props["name"] / "files" / leave["file"]
    python = Path(props["command"][0]).with_name("python")
    try:
        done = subprocess.run(
            [python, script, *leave["arguments"], *arguments],
            env={**inherited_environment(), **props["environment"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
        raise ServiceError(
            f"cannot find out who uses {props['name']} ({script}): {''.join(said)}. Nothing of it "
            "was changed; run `up` again"
        ) from None
    return (done.stdout.strip().splitlines() or ["[]"])[-1]


def _definition(props: Props) -> Definition:
    return Definition(
        name=props["name"],
        command=props["command"],
        environment=props["environment"],
        files={**props["files"], **props["secrets"]},
        folders=props["folders"],
        stop_seconds=int(props["stopSeconds"]),
        always=not props.get("onDemand", False),
    )


def _stands(daemon: Supervisor, definition: Definition) -> bool:
    """Return whether a program runs, or, if it is on demand, whether it could be started."""
    if definition.always:
        return daemon.running(definition.name)
    try:
        return daemon.state(definition.name) is not None
    except OSError:
        return False


def _begin(daemon: Supervisor, definition: Definition, props: Props) -> None:
    """Start a program if its ports are free."""
    if not daemon.alive():
        raise ServiceError(
            f"{process_health.no_answer_error(daemon)}. Run `up` again to bring the services back"
        )
    # Before the former program ends: if it cannot be started again, it goes on as it is.
    own = owned_processes.of_supervisord(daemon.url, daemon.mark, definition.name)
    port_check.refuse_held(process_health.ports_of(props), {each.pid for each in own})
    daemon.remove(definition.name)
    daemon.add(definition)
