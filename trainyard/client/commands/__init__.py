"""The commands of `train` in their groups: each is the function of its name, in its own module.

A module is imported when its command is asked for. What is slow to import, a function imports.
"""

from collections.abc import Mapping, Sequence

Examples = Sequence[tuple[str, str]]
"""The arguments of `train`, and what they do."""

# Commands that are in the module of another one.
MODULES = {
    **dict.fromkeys(("config", "output", "stack", "secrets", "cancel"), "engine"),
    "detach": "attach",
    "helm-values": "manifests",
    "services": "serve",
    "queue": "queued",  # not the name of a module of Python
}

GROUPS: Mapping[str, Mapping[str, Examples]] = {
    "Stacks": {
        "up": [("up", "bring the stack dev up"), ("up -s lab", "the same for lab")],
        "preview": [
            ("preview -s lab", "what up would change"),
            ("preview --diff", "and which properties, and lines of files"),
            ("preview --plan plan.json", "and limit `up --plan plan.json` to that"),
        ],
        "down": [
            ("down", "show what ends, then end the stack dev"),
            ("down -s lab --yes", "do not ask about runs that were not pulled"),
        ],
        "info": [("info -s lab", "addresses, disks, next commands")],
        "watch": [("watch -s lab", "nodes, jobs and runs, until Ctrl-C")],
        "refresh": [("refresh", "then `train up` repairs what differs")],
        "drift": [("drift -s lab", "what differs, and what to do")],
        "debug-dump": [("debug-dump bug.tar.gz -s lab", "for a bug report, without secrets")],
        "review": [("review plan.json", "a page about the plan in Markdown")],
        "user": [
            ("user add eva --file eva.json", "a token of her own for the queue"),
            ("user add s{01..30} --files class", "of each of a class"),
            ("user rm eva", "it ends at once"),
            ("user list", "who has one, and was last there when"),
        ],
        "rotate": [
            ("rotate", "list the secrets"),
            ("rotate object-store-root -s lab", "draw a new one, and run up"),
        ],
    },
    "Jobs": {
        "submit": [
            ("submit alexnet --name first -- --epochs 3", "a job of training/"),
            ("submit my_script.py -- --my-option 4", "a script, with its folder"),
            ("submit alexnet -- --help", "options of the job"),
        ],
        "dev": [("dev my_script.py -- --epochs 1", "run it again after each save")],
        "list": [("list -s lab", "jobs of all users")],
        "queue": [("queue -s lab", "what runs, and who is next")],
        "status": [("status first", "the job of a run")],
        "logs": [
            ("logs -f first", "follow the job of a run to its end"),
            ("logs first --tail 20 --grep Epoch", "the last lines with a text"),
        ],
        "stop": [("stop first", "its checkpoints stay")],
        "new": [("new my_job", "write my_job.py, then submit it")],
        "init": [("init ~/my-repository", "write a project that trains")],
    },
    "Runs": {
        "runs": [("runs -s lab", "all runs, with their last metrics")],
        "show": [("show first --curves curves.png", "metrics as text, curves as a picture")],
        "compare": [
            ("compare first second", "settings that differ, figures, code, throughput"),
            ("compare half- one-", "runs whose names begin so, by group"),
        ],
        "pull": [
            ("pull first", "to results/first"),
            ("pull first -f -s lambda", "again and again, until its job ends"),
        ],
        "cost": [
            ("cost", "of the last 30 days, by user"),
            ("cost --by run --since 7d", "by run; also by job and day"),
        ],
        "rm": [("rm first second", "ask, then delete them with their checkpoints")],
        "restore": [("restore first --from results", "then submit it with --name first")],
    },
    "Models": {
        "serve": [
            ("serve first", "its newest checkpoint, at /first"),
            ("serve first --stop", "withdraw the service"),
            ("serve models:/food11@champion", "what `train promote` chose"),
        ],
        "promote": [("promote first --as champion", "its model is the champion in MLflow")],
        "services": [("services", "what is served, and where")],
    },
    "Pages": {
        "ui": [("ui", "all stacks, jobs and runs on one page, until Ctrl-C")],
        "dashboard": [("dashboard", "open Ray's dashboard, print its token")],
        "tunnel": [("tunnel -s lambda", "open its pages here, until Ctrl-C")],
    },
    "Settings and states": {
        "config": [
            ("config set workers 3 -s lab", "then `train up -s lab`"),
            ("config set --secret lambdaApiKey", "ask for it, and encrypt it"),
            ("config ls", "secrets hidden; also get KEY, rm KEY"),
        ],
        "output": [
            ("output", "all, secrets hidden; --json for a script"),
            ("output rayToken --show-secrets", "one of them"),
        ],
        "stack": [
            ("stack ls", "all stacks of this project"),
            ("stack history -s lab", "what was done, when and by whom"),
            ("stack rm -s lab", "forget an ended one"),
        ],
        "secrets": [("secrets rotate -s lab", "a new key; the secrets stay")],
        "cancel": [("cancel -s lab", "it says whose lock it was")],
    },
    "Rented machines": {
        "keep": [("keep 2h -s lambda", "although nothing runs there")],
        "scale": [("scale -s lambda", "meet Ray's requests, until Ctrl-C")],
        "reap": [
            ("reap", "list what no stack knows, and change nothing"),
            ("reap --end", "ask, then end your orphaned machines"),
            ("reap --past-end", "for schedules: end yours that are past their end"),
        ],
    },
    "Other clusters": {
        "attach": [("attach http://localhost:8265 -s mine", "then `train submit … -s mine`")],
        "detach": [("detach -s mine", "the cluster keeps running")],
        "cluster-file": [
            ("cluster-file -s hosts", "for Ray's own `ray up`"),
            ("cluster-file --provider gcp --project mine", "on Google Cloud"),
        ],
        "manifests": [("manifests -s kube --to deploy", "a file for each object")],
        "helm-values": [("helm-values -s kube", "for KubeRay's chart")],
    },
    "Tests": {
        "drill": [
            ("drill worker-loss first", "kill a worker while the run trains"),
            ("drill store-loss first --seconds 30", "stop the store for a time"),
        ],
    },
}
