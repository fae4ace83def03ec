"""Declares what the setting `shape` says: {name: {kind: local, remote or copy, …properties}}."""

import pulumi
from pulumi_command import local, remote

config = pulumi.Config()
folder = config.require("folder")
connection = config.require_object("connection")
for name, wanted in config.require_object("shape").items():
    props = dict(wanted)
    kind = props.pop("kind", "local")
    timeouts = props.pop("timeouts", None)
    options = pulumi.ResourceOptions(
        custom_timeouts=pulumi.CustomTimeouts(**timeouts) if timeouts else None
    )
    for secret in props.pop("secrets", []):
        props[secret] = pulumi.Output.secret(props[secret])
    if "text" in props:
        props["source"] = pulumi.StringAsset(props.pop("text"))
    if "file" in props:
        props["source"] = pulumi.FileAsset(props.pop("file"))
    if "files" in props:
        props["source"] = pulumi.FileArchive(props.pop("files"))
    if kind == "local":
        made = local.Command(name, **props, opts=options)
    else:
        props["connection"] = connection | props.pop("connection", {})
        resource = remote.CopyToRemote if kind == "copy" else remote.Command
        made = resource(name, **props, opts=options)
    if kind != "copy":
        pulumi.export(f"{name}Out", made.stdout)
