"""A network, a volume, an image, and three containers: with all settings, with none, ended."""

import pulumi
import pulumi_docker as docker

config = pulumi.Config()
prefix = config.require("prefix")
shape = config.require_object("shape")
labels = {"trainyard-test": prefix, "kind": "test"}

network = docker.Network(
    "network",
    name=f"{prefix}-network",
    labels=[docker.NetworkLabelArgs(label=k, value=v) for k, v in labels.items()],
)
volume = docker.Volume(
    "volume",
    name=f"{prefix}-volume",
    labels=[docker.VolumeLabelArgs(label=k, value=v) for k, v in labels.items()],
)
image = docker.RemoteImage(
    "image",
    name=f"{prefix}-image:1",
    keep_locally=True,
    triggers={"context": shape.get("trigger", "1")},
    build=docker.RemoteImageBuildArgs(
        context="image",
        build_args={"BASE_IMAGE": config.require("base"), "FAIL": shape.get("fail", "0")},
        force_remove=True,  # or the container of a build that fails would stay
    ),
)
web = docker.Container(
    "web",
    name=f"{prefix}-web",
    image=image.image_id,
    command=["sleep", "infinity"],
    envs=["B=2", "A=1"],
    hostname="web",
    user="1000:1000",
    working_dir="/tmp",
    group_adds=["44"],
    init=True,
    restart=shape.get("restart", "unless-stopped"),
    networks_advanced=[
        docker.ContainerNetworksAdvancedArgs(name=network.name, aliases=["web", "www"])
    ],
    ports=[
        docker.ContainerPortArgs(internal=80, external=config.require_int("port"), ip="127.0.0.1")
    ],
    volumes=[docker.ContainerVolumeArgs(volume_name=volume.name, container_path="/data")],
    mounts=[docker.ContainerMountArgs(type="tmpfs", target="/scratch")],
    tmpfs={"/run": "size=1m"},
    hosts=[docker.ContainerHostArgs(host="x.test", ip="10.0.0.1")],
    ulimits=[docker.ContainerUlimitArgs(name="nofile", soft=1024, hard=2048)],
    devices=[docker.ContainerDeviceArgs(host_path="/dev/null")],
    uploads=[
        docker.ContainerUploadArgs(file="/etc/test/plain", content="plain"),
        docker.ContainerUploadArgs(
            file="/etc/test/token", content=pulumi.Output.secret("canary-token"), permissions="0444"
        ),
    ],
    healthcheck=docker.ContainerHealthcheckArgs(
        tests=["CMD-SHELL", shape.get("test", "test -s /etc/test/token")],
        interval=shape.get("interval", "200ms"),
        timeout="2s",
        start_period="1m0s",
        retries=3,
    ),
    wait=True,
    wait_timeout=shape.get("wait", 30),
    shm_size=64,
    memory=shape.get("memory", 128),
    memory_swap=256,
    capabilities=docker.ContainerCapabilitiesArgs(drops=["ALL"], adds=["CAP_CHOWN"]),
    security_opts=["no-new-privileges:true"],
    log_driver="json-file",
    log_opts={"max-size": "1m", "max-file": "2"},
    labels=[docker.ContainerLabelArgs(label=k, value=v) for k, v in labels.items()],
    stop_timeout=1,
    destroy_grace_seconds=shape.get("grace", 1),
    opts=pulumi.ResourceOptions(
        # The plugin knows that the old one has to go first only where it replaces by itself.
        replace_on_changes=["healthcheck", "init"],
        delete_before_replace=True,
    ),
)
plain = docker.Container(
    "plain",
    name=f"{prefix}-plain",
    image=image.image_id,
    command=["sleep", "infinity"],
    labels=[docker.ContainerLabelArgs(label="trainyard-test", value=prefix)],
)
once = docker.Container(
    "once",
    name=f"{prefix}-once",
    image=image.image_id,
    command=["sh", "-c", "echo said; exit 3"],
    must_run=False,
    attach=True,
    logs=True,
    labels=[docker.ContainerLabelArgs(label="trainyard-test", value=prefix)],
)
pulumi.export("said", once.container_logs)
pulumi.export("code", once.exit_code)
