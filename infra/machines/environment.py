"""Makes a machine ready for services: the agent, the user's own commands, a Python environment.

It uses pulumi-command, so each step is in the preview and its output is shown while it runs.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pulumi
from pulumi_command import remote

from cluster import page, services
from cluster.descriptor import Source
from cluster.inputs import lift
from infra.machines.bundle import bundle
from infra.machines.executable import Executable, ExecutableArgs
from infra.machines.machine import AGENT, ENVIRONMENT, PROGRAMS, Machine
from infra.operate.backend import project_folder
from node.folders import FolderMark

TIMEOUT = "45m"  # PyTorch and its libraries are gigabytes
DIAL_ERRORS = 5
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

# POSIX shell. uv fetches the Python version that jobs are written for where it is missing.
INSTALL = """\
set -eu
umask 077
base={base}
mark=$base/.trainyard
if [ -s "$mark" ] && ! grep -q '"id": "{id}"' "$mark"; then
  echo "error: another stack of this name is on {machine} in $base: $(cat "$mark")." \
    "Choose another name for this stack, or another user there. If the state of that one is lost," \
    "end what it runs and rm $mark" >&2
  exit 1
fi
mkdir -p "$base/{agent}"
printf '%s\n' {mark} >"$mark"
tar -xzf "$HOME/{archive}" -C "$base/{agent}"
cd "$base/{agent}"
"""
# `ray down` calls the ray that a login finds.
LINK = """\
mkdir -p "$HOME/.local/bin"
ln -sfn {ray} "$HOME/.local/bin/ray"
"""
INSTALLER = """\
if ! [ -x "$base/uv/bin/uv" ]; then
  echo "making the installer"
  python3 -m venv --clear "$base/uv" || {{
    echo "python3 -m venv does not work here: install the package python3-venv" >&2; exit 1; }}
  "$base/uv/bin/pip" install --quiet --require-hashes --requirement setup.txt
fi
uv=$base/uv/bin/uv
env=$base/{environment}
"""
MAKE = """\
if [ -e "$env/conda-meta" ] || ! "$env/bin/python" -c \
    'import sys; sys.exit({version} != sys.version_info[:2])' 2>/dev/null; then
  "$uv" venv --quiet --clear --python {python} "$env"
fi
echo "installing the $(grep -c '==' host.txt) packages of host.txt; PyTorch's are gigabytes"
"$uv" pip sync --quiet --require-hashes --python "$env" host.txt
echo "installed"
"""
# The services' own versions hold: the user's packages have to go with them.
ADD = """\
echo "installing the packages of environmentFile"
"$uv" pip install --quiet --python "$env" --constraints host.txt --requirements {file}
"""
CONDA = """\
conda=
for name in conda mamba micromamba "$HOME"/*/bin/conda /opt/*/bin/conda; do
  conda=$(command -v "$name") && break
done
if [ -z "$conda" ]; then
  echo "error: {machine} has no conda, mamba or micromamba on PATH, in ~ or in /opt, and" \
    "environmentFile is one of conda: let setupCommands install one, or name a file of pip" >&2
  exit 1
fi
action='update --prune'
[ -e "$env/conda-meta" ] || {{ rm -rf "$env"; action=create; }}
CONDA_ALWAYS_YES=true MAMBA_ALWAYS_YES=true \
  "$conda" env $action --quiet --prefix "$env" --file {file}
echo "installing the $(grep -c '==' host.txt) packages of host.txt; PyTorch's are gigabytes"
"$uv" pip install --quiet --require-hashes --python "$env" --requirements host.txt
echo "installed"
"""
CHECK = """\
{python} - <<'END'
import sys
found = sys.version_info[:2]
if found != {version}:
    sys.exit(f"error: {{sys.executable}} is Python {{found[0]}}.{{found[1]}}, and the machine that "
             "the stack is brought up from has {wanted}: jobs need the same on both")
import psutil, ray, socket, supervisor, torch
if ray.__version__ != "{ray}":
    sys.exit(f"error: {{sys.executable}} has Ray {{ray.__version__}}, and {ray} is needed")
if {head}:
    try:
        socket.create_connection({head}, timeout=10).close()
    except OSError as error:
        sys.exit("error: the head's machine is not reached at %s port %d (%s): Ray's nodes talk to "
                 "one another at these addresses; put the machines into one network or region, "
                 "open its firewall between them, or set privateAddress" % (*{head}, error))
if {gpus}:
    # The driver's own tools list devices that no program can use, so one program uses them.
    if torch.cuda.device_count() < {gpus}:
        sys.exit(f"error: PyTorch sees {{torch.cuda.device_count()}} of {gpus} GPUs: look at "
                 "the driver (nvidia-smi, rocm-smi, dmesg); end a rented machine, take another")
    for index in range({gpus}):
        ones = torch.ones(256, 256, device=f"cuda:{{index}}")
        total = float((ones @ ones).sum())
        if total != 256.0**3:
            sys.exit(f"error: GPU {{index}} computes {{total}} in place of {{256.0**3}}")
    print(f"{gpus} GPUs compute: {{torch.cuda.get_device_name(0)}}")
END
"""
REMOVE = """\
grep -q '"id": "{id}"' {base}/.trainyard 2>/dev/null || {{
  printf 'left: %s bears no mark of this stack\n' {base}; exit 0; }}
case $(readlink "$HOME/.local/bin/ray") in {base}/*) rm "$HOME/.local/bin/ray" ;; esac
rm -rf {base} "$HOME/{archive}"
rmdir --ignore-fail-on-non-empty "$(dirname {base})"
"""


OWN_OF_CONDA = "own/environment.yaml"
OWN_OF_PIP = "own/requirements.txt"


def own_file(setting: str) -> dict[str, bytes]:
    """Return the content of the setting environmentFile by its name on the machines, {} for none.

    Raises:
        pulumi.RunError: it cannot be read.
    """
    if not setting:
        return {}
    path = project_folder() / Path(setting).expanduser()
    name = OWN_OF_PIP if path.suffix == ".txt" else OWN_OF_CONDA
    try:
        return {name: path.read_bytes()}
    except OSError as error:
        raise pulumi.RunError(
            f"environmentFile = {setting!r} cannot be read ({path}: {error.strerror}): name a file "
            "of this project"
        ) from None


@dataclass(frozen=True, kw_only=True)
class EnvironmentArgs:
    """The requirements of the services on all machines.

    Attributes:
        setup_commands: the user's, which the shell there runs before anything else.
        own: as `own_file` returns it.
        client: as `bundle.package` returns it, for a service that needs it.
        links_ray: whether a login there finds Ray.
    """

    setup_commands: Sequence[str] = ()
    own: Mapping[str, bytes] = field(default_factory=dict)
    client: Mapping[str, bytes] = field(default_factory=dict)
    ray: str
    links_ray: bool = False


class Environment(pulumi.ComponentResource):
    """The requirements of a machine's services.

    Attributes:
        ready: the last step, which everything on the machine waits for.
    """

    ready: pulumi.Resource

    def __init__(
        self,
        name: str,
        machine: Machine,
        args: EnvironmentArgs,
        mark: pulumi.Output[FolderMark],
        head: pulumi.Input[tuple[str, int]] | None,
    ) -> None:
        """Declare the steps.

        The mark tells the stack's folders and processes from others. The head's machine, by
        address and SSH port, has to be reached from this one; it is None on that one.
        """
        super().__init__("trainyard:host:Environment", name)
        connection = _connection(machine)
        done: list[pulumi.Resource] = []
        if args.setup_commands:
            done.append(
                remote.Command(
                    f"{name}-setup-commands",
                    connection=connection,
                    create="\n".join(["set -e", *args.setup_commands]),
                    triggers=[machine.identity],
                    opts=_options(machine, self),
                )
            )
        archive = bundle(own={**args.own, **args.client})
        agent = remote.CopyToRemote(
            f"{name}-agent",
            connection=connection,
            source=pulumi.FileAsset(str(archive)),
            remote_path=_archive_name(machine),
            triggers=[machine.identity],
            opts=_options(machine, self, done),
        )
        self.ready = remote.Command(
            f"{name}-environment",
            connection=connection,
            create=pulumi.Output.all(machine.gpus, head, mark).apply(
                lambda known: install_script(
                    machine, args, gpus=known[0], head=known[1], mark=known[2]
                )
            ),
            # All of it goes with a rented machine, which may be gone before this could run.
            delete=None
            if machine.part_of
            else mark.apply(lambda known: remove_script(machine, known)),
            # Another archive has another name, and another machine needs all of it.
            triggers=[machine.identity, archive.name],
            opts=pulumi.ResourceOptions.merge(
                _options(machine, self, [agent]),
                # The old and the new one share a folder, which the old one must not remove later.
                pulumi.ResourceOptions(delete_before_replace=True),
            ),
        )
        self.register_outputs({"ready": self.ready.urn})


def prepare(
    machines: Sequence[Machine],
    args: EnvironmentArgs,
    mark: pulumi.Output[FolderMark],
    copied: Mapping[str, pulumi.Input[str]],
) -> list[Machine]:
    """Make machines ready; return them with all their programs, and used only once ready.

    The head's is the first; it gets copies of programs of this machine.
    """
    head = machines[0]
    reached_at: Any = pulumi.Output.all(head.address, head.connection["port"])
    found = []
    for machine in machines:
        reached = None if machine is head else reached_at
        ready = Environment(machine.name, machine, args, mark, reached).ready
        programs: dict[str, pulumi.Input[str]] = {
            service.program: f"{machine.environment}/bin/{service.program}"
            for service in services.ALL
            if service.source in (Source.ENVIRONMENT, Source.MODULE)
        }
        programs[page.SERVICE] = f"{machine.environment}/bin/python"
        programs |= machine.programs
        usable = replace(machine, after=[*machine.after, ready])
        if machine is head:
            programs |= {name: _copy(usable, name, path) for name, path in copied.items()}
        found.append(replace(usable, programs=programs))
    return found


def _copy(machine: Machine, program: str, source: pulumi.Input[str]) -> pulumi.Output[str]:
    path = f"{machine.base}/{PROGRAMS}/{program}"
    return Executable(
        f"{machine.name}-{program}",
        ExecutableArgs(source=source, path=path, **machine.reached),
        machine.options(None),
    ).path


def install_script(
    machine: Machine,
    args: EnvironmentArgs,
    *,
    gpus: int,
    head: tuple[str, int] | None,
    mark: FolderMark,
) -> str:
    """Return the script that unpacks the agent, makes the environment and tries it out."""
    own = next(iter(args.own), "")
    values = {
        "base": shlex.quote(machine.base),
        "machine": machine.name,
        "id": mark.id,
        "mark": shlex.quote(json.dumps(asdict(mark))),
        "agent": AGENT,
        "archive": _archive_name(machine),
        "environment": ENVIRONMENT,
        "file": own,
        "python": PYTHON,
        "version": tuple(sys.version_info[:2]),
    }
    script = INSTALL.format(**values)
    if not machine.python_environment:
        script += INSTALLER.format(**values)
        if own == OWN_OF_CONDA:
            script += CONDA.format(**values)
        else:
            script += MAKE.format(**values)
            script += ADD.format(**values) if own else ""
    if args.links_ray:
        script += LINK.format(ray=shlex.quote(f"{machine.environment}/bin/ray"))
    return script + CHECK.format(
        python=shlex.quote(machine.python),
        version=tuple(sys.version_info[:2]),
        wanted=PYTHON,
        ray=args.ray,
        gpus=int(gpus),
        head=(head[0], int(head[1])) if head else None,
    )


def remove_script(machine: Machine, mark: FolderMark) -> str:
    """Return the script that removes a stack's files from a machine."""
    return REMOVE.format(base=shlex.quote(machine.base), archive=_archive_name(machine), id=mark.id)


def _archive_name(machine: Machine) -> str:
    return f"{PurePosixPath(machine.base).name}.tar.gz"


def _connection(machine: Machine) -> remote.ConnectionArgs:
    known = machine.connection
    return remote.ConnectionArgs(
        host=known["host"],
        port=known["port"],
        user=known["user"],
        host_key=known["hostKey"],
        # Without one the SSH agent is asked.
        private_key=lift(lambda key: key or None, known["privateKey"]),
        dial_error_limit=DIAL_ERRORS,
    )


def _options(
    machine: Machine, parent: pulumi.Resource, depends_on: Sequence[pulumi.Resource] = ()
) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions.merge(
        machine.options(parent, depends_on),
        pulumi.ResourceOptions(
            custom_timeouts=pulumi.CustomTimeouts(create=TIMEOUT, update=TIMEOUT, delete=TIMEOUT)
        ),
    )
