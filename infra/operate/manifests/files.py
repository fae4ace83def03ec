"""The files of a stack on Kubernetes: one per object, the Secrets apart, in the order of `up`.

The same settings give the same bytes, so a difference in Git is a change of the stack.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import yaml

from cluster import helm_values
from infra.operate.manifests.program import Declarations

# The order of applying: objects that others mount, ask for or are guarded by come first.
ORDER = (
    "ConfigMap",
    "PersistentVolumeClaim",
    "NetworkPolicy",
    "Service",
    "Job",
    "StatefulSet",
    "Deployment",
    "PodDisruptionBudget",
    "RayCluster",
)
SECRET, RAY_CLUSTER = "Secret", "RayCluster"
SECRETS_FILE, LIST_FILE, VALUES_FILE = "secrets.yaml", "kustomization.yaml", "values.yaml"
SEALED_FILE = "sealed.yaml"  # which the user makes of the Secrets, next to the other files
SEALING = f"kubeseal --format yaml > {SEALED_FILE}"


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks, and repeats a value instead of an anchor."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Write no anchors: people and `kubectl diff` read the files."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def mark(stack: str) -> str:
    """Return the first line of each of our files; a file without it is not ours."""
    return f"# Written by `train manifests -s {stack}`: change the stack's settings instead.\n"


def documents(found: Declarations) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the objects in the order of applying, and the Secrets."""
    named = sorted(found.objects, key=lambda each: str(each["metadata"]["name"]))
    secrets = [each for each in named if each["kind"] == SECRET]
    last = len(ORDER)
    others = [each for each in named if each["kind"] != SECRET]
    order = {kind: index for index, kind in enumerate(ORDER)}
    return sorted(others, key=lambda each: order.get(str(each["kind"]), last)), secrets


def to_yaml(value: Any) -> str:
    """Return a value as YAML with sorted keys."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=True, width=1000, allow_unicode=True)
    return text


def stream(stack: str, found: Declarations) -> str:
    """Return all objects as one text, the Secrets last."""
    objects, _ = documents(found)
    parts = [to_yaml(each) for each in objects]
    return mark(stack) + remarks(found) + "---\n".join(parts) + "---\n" + secrets_text(found)


def files(stack: str, found: Declarations, *, sealed: bool = False) -> dict[str, str]:
    """Return the text of each file by its name; sealed Secrets, if there are, are listed."""
    objects, secrets = documents(found)
    names = {file_name(each): each for each in objects}
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*([SEALED_FILE] if sealed else []), *names],
    }
    texts = {name: mark(stack) + to_yaml(each) for name, each in names.items()}
    texts[LIST_FILE] = mark(stack) + remarks(found) + to_yaml(listed)
    if secrets:
        texts[SECRETS_FILE] = mark(stack) + secrets_text(found)
    return texts


def file_name(manifest: Mapping[str, Any]) -> str:
    """Return the name of an object's file."""
    return f"{str(manifest['kind']).lower()}-{manifest['metadata']['name']}.yaml"


def secrets_text(found: Declarations) -> str:
    """Return the Secrets without any secret, and how to fill them."""
    _, secrets = documents(found)
    if not secrets:
        return ""
    names = " ".join(f"${name}" for name in (*found.drawn, *found.given))
    namespace = secrets[0]["metadata"]["namespace"]
    lines = [
        "Nothing secret is in here. Never apply it as it is. Fill it once, and keep the result out",
        "of Git, or seal it:",
        *(f"  export {name}=$(openssl rand -hex {size})" for name, size in found.drawn.items()),
        *(f"  export {name}=…  # what it stands for" for name in found.given),
        f"  envsubst '{names}' < {SECRETS_FILE} | kubectl -n {namespace} apply --server-side -f -",
        f"or, with Sealed Secrets:  envsubst '{names}' < {SECRETS_FILE} | {SEALING}",
    ]
    return _comment(lines) + "---\n".join(to_yaml(each) for each in secrets)


def remarks(found: Declarations) -> str:
    """Return the limits of the files as a comment."""
    lines = []
    if any(each["kind"] == SECRET for each in found.objects):
        lines.append(f"The Secrets are in {SECRETS_FILE}, which you fill.")
    if found.others:
        lines += [
            "Not objects of Kubernetes, so not in here: `up` makes them in services that run. See",
            "docs/kubernetes.md#argo-cd-and-flux for how to make them by hand:",
            *(f"  {each}" for each in found.others),
        ]
    return _comment(lines)


def write(stack: str, found: Declarations, folder: Path) -> list[str]:
    """Write the files, and remove the files of former objects of the stack.

    Returns:
        The names of all files.

    Raises:
        pulumi.RunError: the folder cannot be written, or has other files of these names.
    """
    texts = files(stack, found, sealed=(folder / SEALED_FILE).exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ours = {
            path.name
            for path in folder.glob("*.yaml")
            if path.read_text(encoding="utf-8", errors="replace").startswith(mark(stack))
        }
        foreign = sorted(name for name in texts if (folder / name).exists() and name not in ours)
        if foreign:
            raise pulumi.RunError(
                f"{folder} has files of another stack or program ({', '.join(foreign)}): name a "
                "folder for this stack alone with --to"
            )
        for name in ours - texts.keys():
            (folder / name).unlink()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise pulumi.RunError(
            f"cannot write to {folder} ({error.strerror}): name another folder with --to"
        ) from None
    return sorted(texts)


def values(stack: str, found: Declarations) -> str:
    """Return values for KubeRay's chart; a comment lists the values that it lacks.

    Raises:
        pulumi.RunError: the stack has no RayCluster.
    """
    clusters = [each for each in found.objects if each["kind"] == RAY_CLUSTER]
    if not clusters:
        raise pulumi.RunError(f"stack {stack!r} has no Ray cluster, so nothing for a chart")
    (cluster,) = clusters
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
    chosen, missing = helm_values.helm_values(cluster)
    release = f"{name} {helm_values.CHART} --version {helm_values.VERSION} -n {namespace}"
    lines = [
        f"Values of the Ray cluster of stack {stack} for the chart {helm_values.CHART}:",
        f"  helm install {release} -f {VALUES_FILE}",
        "The stack's other objects are not in the chart: apply them first, from `train manifests`",
        f"without {file_name(cluster)}.",
        "The chart cannot do these as the stack does:",
        *(f"- {line}" for line in missing),
    ]
    return _comment(lines) + to_yaml(chosen)


def _comment(lines: Sequence[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
