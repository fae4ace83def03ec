"""The docker runtime: services as containers of one private network on a Docker Engine.

The Engine is that of this machine, or of one reached by SSH.

Nothing that a container gets opens the machine to it: no privileges, no socket of the Engine, no
host network. Secrets reach it as files, so that `docker inspect` shows none.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pulumi
import pulumi_docker as docker

from cluster import dataset, idle_end, notebook, ray_node
from cluster.inputs import lift
from cluster.service import HealthCheck, LeaveSteps, Port, Probe, Service, Volume
from infra.machines import docker_engine, local
from infra.machines.accelerators import ContainerAccess
from infra.machines.machine import Machine
from infra.machines.process import Daemon, DaemonArgs
from infra.operate import build_images
from infra.places.args import RuntimeArgs
from infra.places.containers.container import (
    OWNER_LABEL,
    PROJECT_LABEL,
    STACK_LABEL,
    Node,
    NodeArgs,
    Ready,
    ReadyArgs,
)
from infra.places.containers.container_deadline import Deadline, DeadlineArgs
from infra.places.containers.container_leave import Leave, LeaveArgs
from infra.places.stack_mark import StackMark
from infra.service import images as service_images
from infra.service.images import LOOPBACK, FromImages
from infra.settings import container_limits, images
from node import ray_leave
from node.ports import by_setting
from trainyard.access import docker_client

# Ways to send an HTTP request, by what an image has.
CURL = ("curl", "--fail", "--silent", "--show-error", "--max-time", "3", "--output", "/dev/null")
# As BusyBox has it; its own time limit (-T) ends Debian's with a segmentation fault.
WGET = ("timeout", "3", "wget", "-q", "-O", "/dev/null")
BASH = (
    'exec 3<>/dev/tcp/127.0.0.1/{port}; printf "GET {path} HTTP/1.0\\r\\n\\r\\n" >&3; '
    'read -r -t 3 line <&3; [[ $line == *" 200 "* ]]'
)
# Docker's own look at a service that is up already, for `docker ps` and people. As Go writes
# durations: another spelling of the same one would be seen as a change.
HEALTH_INTERVAL, HEALTH_TIMEOUT, HEALTH_START = "10s", "5s", "1m0s"
HEALTH_RETRIES = 3
LOG_OPTIONS = {"max-size": "10m", "max-file": "3"}
REPOSITORY = "trainyard"
# pulumi-docker claims to change these in place, and then does not.
REPLACING = ["healthcheck", "init"]


@dataclass(frozen=True, kw_only=True)
class DockerRuntimeArgs(RuntimeArgs):
    """Arguments of the docker runtime.

    Attributes:
        access: what a container needs to reach the accelerator of each index.
        machine: that of the Engine; None for this one.
        key_file: private key here that opens it, "" for the SSH agent.
    """

    access: Sequence[ContainerAccess]
    bounds: docker_engine.Bounds
    machine: Machine | None = None
    key_file: str = ""

    @property
    def prefix(self) -> str:
        """What the names of all containers begin with."""
        return self.settings.names_of_containers

    @property
    def services(self) -> list[str]:
        """Names of all services, so that names in use are reported before anything is made."""
        workers = 1 if self.machine else len(self.settings.workers)
        return [name for each in self.running for name in each.services(workers)]


class DockerRuntime(FromImages, pulumi.ComponentResource):
    """Runs services as containers.

    Attributes:
        via: the machine of the Engine; None for this one.
    """

    network: pulumi.Output[str]
    via: Mapping[str, pulumi.Input[Any]] | None

    def __init__(
        self, name: str, args: DockerRuntimeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:docker:DockerRuntime", name, None, opts)
        self._name, self._args = name, args
        # Of the network and the volumes: the prefix tells apart what two users of one Engine have.
        self._identity = f"{args.prefix}{pulumi.get_project()}-{pulumi.get_stack()}"
        self._labels = {PROJECT_LABEL: pulumi.get_project(), STACK_LABEL: pulumi.get_stack()}
        self._volumes: dict[str, docker.Volume] = {}
        self._filled: dict[str, Ready] = {}
        self._leaves: list[Leave] = []
        self.via = dict(args.machine.connection) if args.machine else None
        settings, programs = args.settings, {each.program for each in args.running}
        own = settings.own_data
        self._volume_names = {dataset.VOLUME.name: own} if own else {}
        self._node = Node(
            f"{name}-node",
            NodeArgs(
                stack=pulumi.get_stack(),
                project=pulumi.get_project(),
                identity=self._identity,
                names=[args.prefix + service for service in args.services],
                ports=by_setting(
                    (each.setting, each.number) for each in args.ports if each.published
                ),
                address=settings.publish_address,
                images=images.sources(settings.images, settings.build_arguments, programs),
                volumes=list(self._volume_names.values()) if settings.keep_data else [],
                store=args.store,
                keep=settings.keep_data,
                host=self.via,
            ),
            self._opts(pulumi.ResourceOptions(parent=self)),
        )
        self._engine = None
        if args.machine:
            self._engine = _engine(f"{name}-engine", args.machine, args.key_file, self._node)
        after_node = self._docker_opts(pulumi.ResourceOptions(parent=self, depends_on=[self._node]))
        self._after_node = after_node
        self._images: dict[str, docker.RemoteImage] = {}
        network = docker.Network(
            f"{name}-network",
            name=self._identity,
            driver="bridge",
            labels=[
                docker.NetworkLabelArgs(label=label, value=value)
                for label, value in self._labels.items()
            ],
            opts=after_node,
        )
        self.network = network.name
        # A rented machine ends by itself.
        if args.end and not (args.machine and args.machine.part_of):
            self._end_at(args.end, network)
        self.register_outputs({"network": self.network})

    def _end_at(self, end: str, network: docker.Network) -> None:
        """Declare the timer of a reservation, a program of the Engine's machine."""
        args = self._args
        leave = {
            "container": args.prefix + ray_node.HEAD,
            "script": self.file(ray_node.HEAD, ray_leave.FILE),
            "arguments": [
                self.address(ray_node.HEAD, args.settings.ports["gcsPort"]),
                ray_leave.EVERY,
            ],
        }
        notebook_of = {
            "container": args.prefix + notebook.SERVICE,
            "folder": self.volume(notebook.SERVICE, notebook.WORKSPACE),
        }
        told: dict[str, Any] = {
            "drainSeconds": args.settings.drain_seconds,
            "network": network.name,
            "leave": leave,
            "notebook": notebook_of if notebook.SERVICE in args.services else None,
        }
        if args.settings.reservation:
            told |= args.settings.reservation.hook
        if idle_end.SERVICE in args.services:
            container = args.prefix + idle_end.SERVICE
            told["idle"] = {"container": container, "file": idle_end.state_file(self)}
        opts = pulumi.ResourceOptions(parent=self, depends_on=[network])
        if args.machine:
            # Named like the network: the base folder does not tell apart two stacks that only
            # their prefixes do.
            folder = f"{PurePosixPath(args.machine.base).parent}/{self._identity}"
            deadline = DeadlineArgs(**told, at=end, folder=folder, host=args.machine.connection)
            Deadline(f"{self._name}-deadline", deadline, self._opts(opts))
            return
        # Like processes have it.
        Daemon(
            f"{self._name}-supervisor",
            DaemonArgs(
                folder=str(args.settings.state_dir),
                identifier=self._identity,
                ports={},
                mark=StackMark("mark").props,
                reservation={**told, "ends": "containers", "end": end},
            ),
            opts,
        )

    def _image(self, program: str) -> pulumi.Output[str]:
        """Return the ID of a program's image: a named one, or one that is built here."""
        if program not in self._images:
            if named := self._args.settings.images.get(program):
                name, build = named, None
            else:
                # The tag follows from the inputs of the image, so that it is rebuilt when they
                # change and only then.
                made = build_images.build(program, self._args.settings.build_arguments)
                name = f"{REPOSITORY}/{program}:{made.tag}"
                build = docker.RemoteImageBuildArgs(
                    # From the folder of the program, as engines take it: the state of one machine
                    # is then good on another.
                    context=os.path.relpath(made.context),
                    build_args=made.arguments,
                    force_remove=True,  # also the containers of a build that fails
                )
            self._images[program] = docker.RemoteImage(
                f"image-{program}",
                name=name,
                build=build,
                keep_locally=True,  # other stacks, and the next `up` of this one, use the same
                opts=self._after_node,
            )
        return self._images[program].image_id

    def _opts(self, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
        machine = self._args.machine
        return pulumi.ResourceOptions.merge(opts, machine.options(opts.parent)) if machine else opts

    def _docker_opts(self, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
        provider = pulumi.ResourceOptions(provider=self._engine)
        return pulumi.ResourceOptions.merge(self._opts(opts), provider)

    def address(self, service: str, port: int) -> str:
        return f"{service}:{port}"

    def published(self, service: str, port: int) -> str:  # noqa: ARG002 (numbers are unique)
        """Return host:port at which this Pulumi program reaches a published port."""
        return f"{LOOPBACK}:{port}"

    def public(self, service: str, port: int) -> str:  # noqa: ARG002 (numbers are unique)
        """Return host:port at which users, also on other machines, reach a published port."""
        return f"{self._args.settings.publish_address or LOOPBACK}:{port}"

    def volume(self, service: str, volume: Volume) -> str:  # noqa: ARG002 (each has a file system)
        return service_images.path(volume)

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        name = f"{self._name}-{service.name}"
        chosen = [self._args.access[index] for index in service.gpus]
        checks = [_probe(service.probe, c) for c in service.health]
        settings, bounds = self._args.settings, self._args.bounds
        limit = container_limits.of(service.name, settings.container_limits)
        memory = (limit.memory_mib or service.memory_mib) if bounds.memory else None
        container = docker.Container(
            name,
            docker.ContainerArgs(
                name=self._args.prefix + service.name,
                image=self._image(service.program),
                command=list(service.arguments),
                entrypoints=self._entrypoint(service),
                envs=[
                    pulumi.Output.concat(key, "=", value)
                    for key, value in service.environment.items()
                ],
                uploads=self._uploads(service),
                volumes=self._mounts(service),
                networks_advanced=[
                    docker.ContainerNetworksAdvancedArgs(name=self.network, aliases=[service.name])
                ],
                ports=self._ports(service),
                healthcheck=_healthcheck(checks) if checks else None,
                # Reaps a job's processes that lost their parent.
                init=True,
                must_run=not service.once,
                restart="no" if service.once else "unless-stopped",
                shm_size=service.shared_memory_mib or None,
                memory=memory,
                # Swap adds nothing to the bound; Docker notes -1 where it counts no swap.
                memory_swap=None if memory is None else memory if bounds.swap else -1,
                # `docker stop` gives a service as long as destroy does.
                stop_timeout=max(1, service.stop_seconds),
                destroy_grace_seconds=service.stop_seconds,
                capabilities=docker.ContainerCapabilitiesArgs(drops=["ALL"]),
                security_opts=["no-new-privileges:true"],
                log_driver="json-file",
                log_opts=LOG_OPTIONS,
                labels=[
                    docker.ContainerLabelArgs(label=label, value=value)
                    for label, value in {
                        **self._labels,
                        OWNER_LABEL: local.owner(settings.owner),
                    }.items()
                ],
                gpus=_device(service, chosen),
                devices=[
                    docker.ContainerDeviceArgs(host_path=path)
                    for path in dict.fromkeys(p for access in chosen for p in access.devices)
                ],
                group_adds=list(dict.fromkeys(g for access in chosen for g in access.groups)),
            ),
            pulumi.ResourceOptions.merge(
                self._docker_opts(opts),
                pulumi.ResourceOptions(
                    depends_on=[
                        self._node,
                        *self._fillers(service),
                        *self._leaving(service, opts),
                    ],
                    replace_on_changes=REPLACING,
                    # Another user's `up` restarts nothing: the owner counts from its next start.
                    ignore_changes=["labels"],
                    delete_before_replace=True,  # the name and the ports are free only then
                ),
            ),
        )
        ready = Ready(
            f"{name}-ready",
            ReadyArgs(
                container=container.id,
                network=self.network,
                alias=service.name,
                checks=checks,
                once=service.once,
                processes=limit.processes if bounds.processes else 0,
                timeout=settings.start_timeout_seconds,
                steadySeconds=service.steady_seconds or None,
                host=self.via,
            ),
            self._opts(pulumi.ResourceOptions(parent=opts.parent, depends_on=[container])),
        )
        if service.once:
            self._filled |= {volume.name: ready for volume in service.volumes}
        if service.leave and service.leave.drains:
            after = pulumi.ResourceOptions(parent=opts.parent, depends_on=[container])
            Leave(f"{name}-removed", self._leave(service, service.leave, ""), self._opts(after))
        return ready

    def _entrypoint(self, service: Service) -> list[str] | None:
        """Return the words that start a service's script; None where its image says it."""
        return ["python3", self.file(service.name, service.script)] if service.script else None

    def _leaving(self, service: Service, opts: pulumi.ResourceOptions) -> list[Leave]:
        """Return the Leave of a service, whose users leave before its container is replaced."""
        if (asked := service.leave) is None:
            return []
        made_from = {
            "image": self._image(service.program),
            "arguments": list(service.arguments),
            "environment": dict(service.environment),
            "files": {**service.files, **service.secrets},
            "volumes": [volume.name for volume in service.volumes],
            "sharedMemory": service.shared_memory_mib,
            "ports": [port.number for port in self._published(service)],
            "gpus": list(service.gpus),
        }
        version = pulumi.Output.json_dumps(made_from).apply(
            lambda text: hashlib.sha256(text.encode()).hexdigest()
        )
        leave = Leave(
            f"{self._name}-{service.name}-leave",
            # A digest of secrets and much more: it tells nothing about them.
            self._leave(service, asked, pulumi.Output.unsecret(version)),
            self._opts(
                pulumi.ResourceOptions(
                    parent=opts.parent, depends_on=[self._node, *self._leaves[-1:]]
                )
            ),
        )
        self._leaves.append(leave)
        return [leave]

    def _leave(self, service: Service, asked: LeaveSteps, version: pulumi.Input[str]) -> LeaveArgs:
        return LeaveArgs(
            container=self._args.prefix + service.name,
            service=service.name,
            script=self.file(service.name, asked.file),
            arguments=asked.arguments,
            drains=asked.drains,
            seconds=self._args.settings.drain_seconds,
            timeout=self._args.settings.start_timeout_seconds,
            version=version,
            host=self.via,
        )

    def _fillers(self, service: Service) -> list[Ready]:
        """Return the waits for the services that fill a service's volumes.

        Not only for the content: each container that is made with a still empty volume gives it the
        owner that the folder has in the container's image.
        """
        return [self._filled[v.name] for v in service.volumes if v.name in self._filled]

    def _uploads(self, service: Service) -> list[docker.ContainerUploadArgs]:
        contents = {**service.files, **service.secrets}
        return [
            docker.ContainerUploadArgs(
                file=self.file(service.name, name),
                content=pulumi.Output.secret(content) if name in service.secrets else content,
                # Read by the one user that the container's image has.
                permissions="0444",
            )
            for name, content in sorted(contents.items())
        ]

    def _mounts(self, service: Service) -> list[docker.ContainerVolumeArgs]:
        return [
            docker.ContainerVolumeArgs(
                volume_name=self._declared(service.name, volume).name,
                container_path=self.volume(service.name, volume),
                read_only=volume.read_only,
            )
            for volume in service.volumes
            if volume.keep or volume.shared or volume.source
        ] + [
            docker.ContainerVolumeArgs(
                host_path=local.existing_file(path, f"{service.name}.{name}"),
                container_path=self.file(service.name, name),
                read_only=True,
            )
            for name, path in service.host_files.items()
        ]

    def _declared(self, service: str, volume: Volume) -> docker.Volume:
        key = volume.name if volume.shared else f"{service}-{volume.name}"
        options = _options(volume) if volume.source else None
        if options:  # a volume's options cannot change: another source is another volume
            key = f"{volume.name}-{hashlib.sha256(repr(options).encode()).hexdigest()[:8]}"
        if key not in self._volumes:
            self._volumes[key] = docker.Volume(
                f"{self._name}-volume-{key}",
                name=self._volume_names.get(key, f"{self._identity}-{key}"),
                driver_opts=options,
                labels=[
                    docker.VolumeLabelArgs(label=label, value=value)
                    for label, value in self._labels.items()
                ],
                opts=self._docker_opts(
                    pulumi.ResourceOptions(
                        parent=self,
                        depends_on=[self._node],
                        # An existing volume is taken over, with its labels and its content.
                        ignore_changes=["labels"],
                        # Results of training and their history cannot be made again.
                        retain_on_delete=volume.keep and self._args.settings.keep_data,
                    )
                ),
            )
        return self._volumes[key]

    def _ports(self, service: Service) -> list[docker.ContainerPortArgs]:
        return [
            docker.ContainerPortArgs(
                internal=port.number,
                external=port.number,
                ip=self._args.settings.publish_address if port.public else LOOPBACK,
            )
            for port in self._published(service)
        ]

    @staticmethod
    def _published(service: Service) -> list[Port]:
        return [port for port in service.ports if port.published or port.public]


def _options(volume: Volume) -> dict[str, str]:
    """Return what the Engine mounts as a volume; it refuses a folder that is not there."""
    if nfs := volume.source.get("nfs"):
        server, _, folder = nfs.partition(":")
        return {"type": "nfs", "o": f"addr={server}", "device": f":{folder}"}
    return {"type": "none", "o": "bind", "device": volume.source["path"]}


def _engine(name: str, machine: Machine, key_file: str, node: pulumi.Resource) -> docker.Provider:
    """Return the provider of another machine's Engine; it changes only if that is the same one."""
    there = machine.connection
    return docker.Provider(
        name,
        host=pulumi.Output.all(*(there[key] for key in ("user", "host", "port"))).apply(
            lambda known: docker_client.ssh_host(*known)
        ),
        ssh_opts=lift(lambda key: docker_client.ssh_options(key, key_file), there["hostKey"]),
        opts=pulumi.ResourceOptions(parent=node, depends_on=[node]),
    )


def _device(service: Service, chosen: Sequence[ContainerAccess]) -> str | None:
    """Return Docker's name of the one NVIDIA device that a container sees; None for none."""
    found = [device for access in chosen for device in access.gpus]
    if len(found) > 1:
        raise pulumi.RunError(
            f"{service.name} asks for {len(found)} GPUs: a container of this runtime gets one of "
            "NVIDIA's; set worker.gpus to 1 and workers to the number of devices"
        )
    return f"device={found[0]}" if found else None


def _probe(probe: Probe, check: HealthCheck) -> list[str]:
    """Return a command that ends with 0 when the port answers the path with 200."""
    url = f"http://{LOOPBACK}:{check.port}{check.path}"
    match probe:
        case Probe.CURL:
            return [*CURL, url]
        case Probe.WGET:
            return [*WGET, url]
        case Probe.BASH:
            return ["bash", "-c", BASH.format(port=check.port, path=check.path)]


def _healthcheck(checks: list[list[str]]) -> docker.ContainerHealthcheckArgs:
    """Return Docker's health check: it takes one command, and a shell joins several."""
    test = ["CMD", *checks[0]]
    if len(checks) > 1:
        test = ["CMD-SHELL", " && ".join(" ".join(check) for check in checks)]
    return docker.ContainerHealthcheckArgs(
        tests=test,
        interval=HEALTH_INTERVAL,
        timeout=HEALTH_TIMEOUT,
        start_period=HEALTH_START,
        retries=HEALTH_RETRIES,
    )
