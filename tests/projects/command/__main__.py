"""Declares what the setting `shape` says: {name: {kind: command or copy, …properties}}."""

import pulumi
from pulumi_command import remote

config = pulumi.Config()
connection = config.require_object("connection")
for name, wanted in config.require_object("shape").items():
    props = dict(wanted)
    kind = props.pop("kind", "command")
    timeouts = props.pop("timeouts", None)
    options = pulumi.ResourceOptions(
        custom_timeouts=pulumi.CustomTimeouts(**timeouts) if timeouts else None
    )
    for secret in props.pop("secrets", []):
        props[secret] = pulumi.Output.secret(props[secret])
    props["connection"] = remote.ConnectionArgs(**connection | props.pop("connection", {}))
    if kind == "copy":
        remote.CopyToRemote(name, source=pulumi.FileAsset(props.pop("file")), **props, opts=options)
    else:
        made = remote.Command(name, **props, opts=options)
        pulumi.export(f"{name}Out", made.stdout)
