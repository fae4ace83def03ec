"""Declares what the setting `shape` says: {name: {text, kind, after, group, …}}."""

import pulumi
from filestore import File, Group

TAKEN = ("retain_on_delete", "ignore_changes", "replace_on_changes")  # options, as they are
config = pulumi.Config()
folder = config.require("folder")
made = {}
for name, wanted in config.require_object("shape").items():
    options = {key: wanted[key] for key in TAKEN if key in wanted}
    if "deleted_with" in wanted:
        options["deleted_with"] = made[wanted["deleted_with"]]
    if "after" in wanted:
        options["depends_on"] = [made[wanted["after"]]]
    if "import" in wanted:
        options["import_"] = wanted["import"]
    props = {"folder": folder, "text": wanted.get("text", ""), "kind": wanted.get("kind", "plain")}
    if "token" in wanted:
        props["token"] = pulumi.Output.secret(wanted["token"])
    if "text_of" in wanted:
        props["text"] = made[wanted["text_of"]].path
    if "kind_of" in wanted:
        props["kind"] = made[wanted["kind_of"]].path
    if "text_from" in wanted:
        stack, output = wanted["text_from"]
        props["text"] = pulumi.StackReference(stack).require_output(output)
    kind = Group if wanted.get("group") else File
    made[name] = kind(name, props, pulumi.ResourceOptions(**options))
    pulumi.export(f"{name}Path", made[name].path)
    if kind is File:
        pulumi.export(f"{name}Made", made[name].made)
if not made:
    pulumi.log.warn("nothing is declared")
