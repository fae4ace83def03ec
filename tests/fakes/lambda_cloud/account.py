"""The account of the fake cloud: its content, and each operation's effects on it.

Nothing here knows HTTP. Due changes happen when somebody looks. Several threads may use an account.
"""

import contextlib
import itertools
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from tests.fakes.lambda_cloud import catalogue
from tests.fakes.lambda_cloud.machines_protocol import Machines

MISSING = "global/object-does-not-exist"
INVALID = "global/invalid-parameters"
CAPACITY = "instance-operations/launch/insufficient-capacity"
USER_DATA_LIMIT = 1_000_000  # characters
SEE_LIST = "List what is there and try again."
CREATED = "2026-11-21T12:00:00Z"


class Refusal(Exception):  # noqa: N818 (the API's word for no)
    """The API says no."""

    def __init__(self, status: int, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.suggestion = suggestion


@dataclass(kw_only=True)
class Instance:
    """An instance.

    Attributes:
        mounts: ids of file systems by mount point.
        rulesets: ids.
        outcome: its status after the boot; stuck never ends.
        due: when its status changes next, seconds since the epoch.
    """

    id: str
    name: str
    hostname: str
    region: str
    type: str
    ssh_key_name: str
    tags: dict[str, str]
    user_data: str
    mounts: dict[str, str]
    rulesets: list[str]
    status: str = "booting"
    outcome: str = "active"
    due: float = 0.0
    ip: str = ""
    private_ip: str = ""


class Account:
    """An account of the fake cloud; tests look into it and change it as they like.

    Attributes:
        instances: by id, from the launch until the API no longer knows them.
        launched: ids of all instances that ever were.
        ssh_keys, file_systems, rulesets: by id, as the API shows them.
        types: as the API shows them, by name.
        capacity: instances that can still start, by type and region.
        boots: outcomes of the boots of the next launches; if empty, active.
        boot_seconds, terminate_seconds: how long it takes.
        machine_errors: tracebacks of the machines.
    """

    def __init__(self, *, boot_seconds: float = 0.0, machines: Machines | None = None) -> None:
        self.lock = threading.RLock()
        self.instances: dict[str, Instance] = {}
        self.launched: list[str] = []
        self.ssh_keys: dict[str, dict[str, Any]] = {}
        self.file_systems: dict[str, dict[str, Any]] = {}
        self.rulesets: dict[str, dict[str, Any]] = {}
        self.types = catalogue.types()
        self.capacity = catalogue.capacity()
        self.boots: list[str] = []
        self.boot_seconds = boot_seconds
        self.terminate_seconds = 0.0
        self.machine_errors: list[str] = []
        self._addresses = itertools.count(1)
        self._machines = machines
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="machine")
        self._booting: dict[str, Future[None]] = {}
        self._ending: dict[str, Future[None]] = {}

    def close(self) -> None:
        with self.lock:
            ids = list(self._booting)
            for id_ in ids:
                self._end_machine(id_)
        self._threads.shutdown(wait=True)

    # The tests' operations.

    def add_instance(self, name: str, **fields: Any) -> Instance:
        """Put somebody's active instance into the account; not by way of the API."""
        given: dict[str, Any] = {
            "hostname": name,
            "region": "us-east-1",
            "type": "gpu_1x_a10",
            "ssh_key_name": "somebody",
            "tags": {},
            "user_data": "",
            "mounts": {},
            "rulesets": [],
            "status": "active",
        }
        with self.lock:
            instance = Instance(id=uuid.uuid4().hex, name=name, **(given | fields))
            self._set_addresses(instance)
            self.instances[instance.id] = instance
            return instance

    def disappear(self, id_: str) -> None:
        """Let an instance vanish as if somebody had ended it elsewhere."""
        with self.lock:
            self._remove(self.instances[id_])

    def settle(self) -> None:
        with self.lock:
            for instance in list(self.instances.values()):
                self._settle(instance)

    # The operations: id in the path, body; they return `data`.

    def op_instance_types(self, _id: str, _body: Any) -> Any:
        return {
            name: {
                "instance_type": entry,
                "regions_with_capacity_available": [
                    catalogue.region(region)
                    for region in catalogue.REGIONS
                    if self.capacity.get(name, {}).get(region, 0) > 0
                ],
            }
            for name, entry in self.types.items()
        }

    def op_instances(self, _id: str, _body: Any) -> Any:
        return [self._shown(instance) for instance in self.instances.values()]

    def op_instance(self, id_: str, _body: Any) -> Any:
        return self._shown(self._instance(id_))

    def op_rename(self, id_: str, body: Any) -> Any:
        instance = self._instance(id_)
        instance.name = body.get("name", instance.name)
        return self._shown(instance)

    def op_launch(self, _id: str, body: Any) -> Any:
        region, type_ = body["region_name"], body["instance_type_name"]
        mounts, rulesets, key = self._checked(body)
        left = self.capacity.get(type_, {})
        if left.get(region, 0) < 1:
            raise Refusal(400, CAPACITY, "Not enough capacity to fulfill launch request.")
        left[region] -= 1
        id_ = uuid.uuid4().hex
        instance = Instance(
            id=id_,
            name=body.get("name", ""),
            hostname=body.get("hostname", f"host-{id_[:8]}"),
            region=region,
            type=type_,
            ssh_key_name=key["name"],
            tags={tag["key"]: tag["value"] for tag in body.get("tags", [])},
            user_data=body.get("user_data", ""),
            mounts=mounts,
            rulesets=rulesets,
            outcome=self.boots.pop(0) if self.boots else "active",
            due=time.time() + self.boot_seconds,
        )
        self.instances[id_] = instance
        self.launched.append(id_)
        if self._machines is None:
            self._set_addresses(instance)
        else:
            self._booting[id_] = self._threads.submit(self._boot, instance, key["public_key"])
        return {"instance_ids": [id_]}

    def op_terminate(self, _id: str, body: Any) -> Any:
        found = [self._instance(id_) for id_ in body["instance_ids"]]
        for instance in found:
            if instance.status not in ("terminating", "terminated"):
                instance.status = "terminating"
                instance.due = time.time() + self.terminate_seconds
                self._end_machine(instance.id)
        return {"terminated_instances": [self._shown(instance) for instance in found]}

    def op_ssh_keys(self, _id: str, _body: Any) -> Any:
        return list(self.ssh_keys.values())

    def op_add_ssh_key(self, _id: str, body: Any) -> Any:
        if any(key["name"] == body["name"] for key in self.ssh_keys.values()):
            raise Refusal(400, INVALID, f"There is an SSH key {body['name']}.")
        try:
            serialization.load_ssh_public_key(body["public_key"].encode())
        except (ValueError, UnsupportedAlgorithm):
            raise Refusal(400, INVALID, "The public key is not one.") from None
        made = {"id": uuid.uuid4().hex, "name": body["name"], "public_key": body["public_key"]}
        self.ssh_keys[made["id"]] = made
        return dict(made)

    def op_delete_ssh_key(self, id_: str, _body: Any) -> Any:
        # The document does not have a 404 here.
        if self.ssh_keys.pop(id_, None) is None:
            raise Refusal(400, INVALID, "There is no such SSH key.", SEE_LIST)
        return {}

    def op_file_systems(self, _id: str, _body: Any) -> Any:
        used = self._mounted()
        return [each | {"is_in_use": each["id"] in used} for each in self.file_systems.values()]

    def op_create_file_system(self, _id: str, body: Any) -> Any:
        if any(each["name"] == body["name"] for each in self.file_systems.values()):
            raise Refusal(400, "global/duplicate", f"There is a file system {body['name']}.")
        made = {
            "id": uuid.uuid4().hex,
            "name": body["name"],
            "mount_point": f"/lambda/nfs/{body['name']}",
            "created": CREATED,
            "created_by": {"id": "user-1", "email": "user@example.com", "status": "active"},
            "is_in_use": False,
            "region": catalogue.region(body["region"]),
        }
        self.file_systems[made["id"]] = made
        return made

    def op_delete_file_system(self, id_: str, _body: Any) -> Any:
        if id_ not in self.file_systems:
            raise Refusal(404, MISSING, "Filesystem was not found.")
        if id_ in self._mounted():
            raise Refusal(400, "filesystems/filesystem-in-use", "Filesystem is in use.")
        del self.file_systems[id_]
        return {"deleted_ids": [id_]}

    def op_firewall_rulesets(self, _id: str, _body: Any) -> Any:
        return [self._shown_ruleset(each) for each in self.rulesets.values()]

    def op_create_firewall_ruleset(self, _id: str, body: Any) -> Any:
        made = {
            "id": uuid.uuid4().hex,
            "name": body["name"],
            "region": catalogue.region(body["region"]),
            "rules": body["rules"],
            "created": CREATED,
        }
        self.rulesets[made["id"]] = made
        return self._shown_ruleset(made)

    def op_update_firewall_ruleset(self, id_: str, body: Any) -> Any:
        found = self._ruleset(id_)
        found.update({key: body[key] for key in ("name", "rules") if key in body})
        return self._shown_ruleset(found)

    def op_delete_firewall_ruleset(self, id_: str, _body: Any) -> Any:
        if self._shown_ruleset(self._ruleset(id_))["instance_ids"]:
            raise Refusal(
                400,
                "firewall-rulesets/firewall-ruleset-in-use",
                "Firewall ruleset is in use by one or more instances.",
                "Terminate all instances that are using the ruleset before deleting it.",
            )
        del self.rulesets[id_]
        return {}

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the account for one operation, with all done that is due."""
        with self.lock:
            self.settle()
            yield

    def _mounted(self) -> set[str]:
        return {id_ for each in self.instances.values() for id_ in each.mounts.values()}

    def _checked(self, body: Any) -> tuple[dict[str, str], list[str], dict[str, Any]]:
        """Return file systems by mount point, ids of rulesets and the SSH key of a launch."""
        region = body["region_name"]
        if body["instance_type_name"] not in self.types:
            raise Refusal(404, MISSING, "There is no such instance type.", SEE_LIST)
        if len(body["ssh_key_names"]) != 1:
            raise Refusal(400, INVALID, "Exactly one SSH key must be specified.")
        if len(body.get("user_data", "")) > USER_DATA_LIMIT:
            raise Refusal(400, INVALID, "User data is longer than 1 MB.")
        named = {key["name"]: key for key in self.ssh_keys.values()}
        if (name := body["ssh_key_names"][0]) not in named:
            raise Refusal(404, MISSING, f"There is no SSH key {name}.", SEE_LIST)
        given = body.get("file_system_mounts", [])
        mounts = {mount["mount_point"]: mount["file_system_id"] for mount in given}
        for id_ in mounts.values():
            if id_ not in self.file_systems:
                raise Refusal(404, MISSING, f"There is no file system {id_}.", SEE_LIST)
            if self.file_systems[id_]["region"]["name"] != region:
                code = "instance-operations/launch/file-system-in-wrong-region"
                raise Refusal(400, code, f"File system {id_} is not in {region}.")
        rulesets = [entry["id"] for entry in body.get("firewall_rulesets", [])]
        for id_ in rulesets:
            if id_ not in self.rulesets:
                raise Refusal(404, MISSING, f"There is no firewall ruleset {id_}.", SEE_LIST)
            if self.rulesets[id_]["region"]["name"] != region:
                raise Refusal(400, INVALID, f"Firewall ruleset {id_} is not in {region}.")
        return mounts, rulesets, named[name]

    def _instance(self, id_: str) -> Instance:
        if id_ not in self.instances:
            raise Refusal(404, MISSING, "Specified instance does not exist.")
        return self.instances[id_]

    def _ruleset(self, id_: str) -> dict[str, Any]:
        if id_ not in self.rulesets:
            raise Refusal(
                404,
                MISSING,
                "Firewall ruleset does not exist or you do not have permission to access it.",
                "Check your firewall ruleset ID and try again.",
            )
        return self.rulesets[id_]

    def _shown(self, instance: Instance) -> dict[str, Any]:
        running = instance.status == "active"
        action = (
            {"available": True}
            if running
            else {"available": False, "reason_code": "vm-has-not-launched"}
        )
        names = ("migrate", "rebuild", "restart", "cold_reboot", "terminate")
        shown: dict[str, Any] = {
            "id": instance.id,
            "status": instance.status,
            "ssh_key_names": [instance.ssh_key_name],
            "file_system_names": [
                self.file_systems[id_]["name"] for id_ in instance.mounts.values()
            ],
            "region": catalogue.region(instance.region),
            "instance_type": self.types[instance.type],
            "hostname": instance.hostname,
            "actions": dict.fromkeys(names, action) | {"terminate": {"available": True}},
        }
        if instance.name:
            shown["name"] = instance.name
        if instance.tags:
            shown["tags"] = [{"key": key, "value": instance.tags[key]} for key in instance.tags]
        if instance.mounts:
            shown["file_system_mounts"] = [
                {"mount_point": path, "file_system_id": id_}
                for path, id_ in instance.mounts.items()
            ]
        if instance.rulesets:
            shown["firewall_rulesets"] = [{"id": id_} for id_ in instance.rulesets]
        if instance.ip and instance.status != "booting":
            shown |= {"ip": instance.ip, "private_ip": instance.private_ip}
        return shown

    def _shown_ruleset(self, ruleset: dict[str, Any]) -> dict[str, Any]:
        users = [each.id for each in self.instances.values() if ruleset["id"] in each.rulesets]
        return ruleset | {"instance_ids": users}

    def _settle(self, instance: Instance) -> None:
        if time.time() < instance.due:
            return
        if instance.status == "booting":
            booted = self._booting.get(instance.id)
            if instance.outcome == "stuck" or not (booted is None or booted.done()):
                return
            instance.status = instance.outcome
        elif instance.status in ("terminating", "terminated"):
            ended = self._ending.get(instance.id)
            if ended is None or ended.done():
                self._remove(instance)

    def _remove(self, instance: Instance) -> None:
        self._end_machine(instance.id)
        del self.instances[instance.id]
        left = self.capacity.setdefault(instance.type, {})
        left[instance.region] = left.get(instance.region, 0) + 1

    def _boot(self, instance: Instance, public_key: str) -> None:
        assert self._machines is not None
        try:
            ip, private_ip = self._machines.boot(
                instance.id, instance.name, instance.hostname, instance.user_data, public_key
            )
        except Exception:  # told by the instance's status
            with self.lock:
                self.machine_errors.append(traceback.format_exc())
                instance.outcome = "unhealthy"
        else:
            with self.lock:
                instance.ip, instance.private_ip = ip, private_ip

    def _end_machine(self, id_: str) -> None:
        booting = self._booting.pop(id_, None)
        if booting is not None:
            self._ending[id_] = self._threads.submit(self._destroy, id_, booting)

    def _destroy(self, id_: str, booting: Future[None]) -> None:
        assert self._machines is not None
        booting.result()
        try:
            self._machines.destroy(id_)
        except Exception:  # for machine_errors
            with self.lock:
                self.machine_errors.append(traceback.format_exc())

    def _set_addresses(self, instance: Instance) -> None:
        number = next(self._addresses)
        instance.ip = f"127.66.{number // 250}.{number % 250 + 1}"
        instance.private_ip = f"127.66.{128 + number // 250}.{number % 250 + 1}"
