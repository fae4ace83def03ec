"""A network, a volume, an image, and three containers: with all settings, with few, ended.

With the setting `gate` it does not end before that file is there.
"""

import time
from pathlib import Path

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
    name=f"{prefix}-image:{shape.get('tag', '1')}",
    keep_locally=True,
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
    group_adds=["44"],
    init=True,
    must_run=True,
    restart=shape.get("restart", "unless-stopped"),
    networks_advanced=[
        docker.ContainerNetworksAdvancedArgs(name=network.name, aliases=["web", "www"])
    ],
    ports=[
        docker.ContainerPortArgs(internal=80, external=config.require_int("port"), ip="127.0.0.1")
    ],
    volumes=[docker.ContainerVolumeArgs(volume_name=volume.name, container_path="/data")],
    devices=[docker.ContainerDeviceArgs(host_path="/dev/null")],
    uploads=[
        docker.ContainerUploadArgs(file="/etc/test/plain", content="plain", permissions="0644"),
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
    shm_size=64,
    memory=shape.get("memory", 128),
    memory_swap=256,
    capabilities=docker.ContainerCapabilitiesArgs(drops=["ALL"]),
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
    must_run=True,
    restart="no",
    labels=[docker.ContainerLabelArgs(label="trainyard-test", value=prefix)],
)
once = docker.Container(
    "once",
    name=f"{prefix}-once",
    image=image.image_id,
    command=["sh", "-c", "echo said; exit 3"],
    must_run=False,
    restart="no",
    labels=[docker.ContainerLabelArgs(label="trainyard-test", value=prefix)],
)


def _held(gate):
    while not Path(gate).exists():
        time.sleep(0.05)


if "gate" in shape:
    made = pulumi.Output.all(web.id, plain.id, once.id)
    pulumi.export("held", made.apply(lambda _: _held(shape["gate"])))
