"""Creates, reads, changes and deletes things in an account of Lambda Cloud.

Create returns as soon as the API has given an id, so that the id is in the state at once; waiting
is a resource of its own (Active). The API key comes from the environment or the stack's config when
a call is made, and is not part of any property.
"""

import contextlib
import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pulumi import dynamic

from cluster.provider import A, has_unknown, say, seen
from infra.machines import cloud_provider, identity, keys
from infra.machines.cloud_provider import AccountArgs, CloudProvider, Props
from infra.machines.keys import KeyPair
from infra.places.lambda_cloud import API_KEY, machines
from infra.places.lambda_cloud.account import KEY_VARIABLES, open_account
from infra.places.lambda_cloud.args import (
    ActiveArgs,
    FileSystemArgs,
    FirewallRulesetArgs,
    SshKeyArgs,
)
from infra.places.lambda_cloud.choice import ChoiceError, InstanceRequest, Pick, choose
from infra.places.lambda_cloud.client import Client
from infra.places.lambda_cloud.errors import (
    AccessError,
    InUseError,
    LambdaError,
    LostReplyError,
    NotFoundError,
    ServerError,
)
from infra.places.lambda_cloud.machines import Order
from infra.places.lambda_cloud.model import FirewallRule, FirewallRuleset, Machine, SshKey
from trainyard.access.key_file import KeyFileError
from trainyard.access.ssh_run import agent_holds

EVERYBODY = "0.0.0.0/0"
IN_USE_STEP_SECONDS = 5.0
IN_USE_LIMIT_SECONDS = 5 * 60.0  # the API takes a while to notice that an instance has ended


class _Provider(CloudProvider[A]):
    api_key = API_KEY

    @cached_property
    def _api(self) -> Client:
        return open_account(self._key, self._cancellation.sleep)

    @property
    def _clock(self) -> machines.Clock:
        return machines.Clock(sleep=self._cancellation.sleep)


class AccountProvider(_Provider[AccountArgs], cloud_provider.AccountProvider):
    """A stack's part of the account: its id, and the proof at the end that nothing is left."""

    def delete(self, _id: str, _props: Props) -> None:
        """End things with the id that are not in any state, and say that nothing is left.

        All other things depend on this one, so they are gone by now. Anything found comes from a
        launch whose reply was lost.
        """
        api, clock = self._api, self._clock
        machines.terminate_strays(api, _id, clock)
        for ruleset in api.firewall_rulesets():
            if identity.mark_in_name(ruleset.name).stack == _id:
                _when_unused(ruleset.id, api.delete_firewall_ruleset, clock)
        for key in api.ssh_keys():
            if identity.mark_in_key(key.public_key).stack == _id:
                api.delete_ssh_key(key.id)
        say(f"the account holds nothing of stack {AccountArgs.of(_props).stack} ({_id}) any more")


class ChoiceProvider(_Provider[InstanceRequest]):
    """The choice of instance type and region; it exists in the state only."""

    def check(self, _olds: Props, news: Props) -> dynamic.CheckResult:
        """Choose, in the preview too: the cost is known before anything is made.

        The choice holds for as long as the account has an instance of the stack where it says, and
        the settings still name it: a later `up` never moves a live cluster.
        """
        if has_unknown({key: value for key, value in news.items() if key != "stackId"}):
            return dynamic.CheckResult(news, [])
        try:
            request = InstanceRequest.of(news)
            picks = self._kept(_olds, request)
            if picks is None:
                picks, refused = choose(request, self._api.instance_types())
                for line in refused:
                    say(f"not {line}")
        except ChoiceError as error:
            return dynamic.CheckResult(news, [dynamic.CheckFailure(error.setting, str(error))])
        except LambdaError as error:
            return dynamic.CheckResult(news, [_failure(error)])
        first = picks[0]
        say(request.describe(first))
        chosen = {
            "region": first.region,
            "choices": [pick.model_dump(by_alias=True) for pick in picks],
            "regions": sorted({pick.region for pick in picks}),
            "hourlyCost": round(first.hourly_cost * request.count, 2),
        }
        return dynamic.CheckResult({**news, **chosen}, [])

    def make(self, _args: InstanceRequest) -> tuple[str, Props]:
        """Note the choice; instances decide whether another one replaces them."""
        return "choice", {}

    def _kept(self, olds: Props, request: InstanceRequest) -> list[Pick] | None:
        """Return the picks to keep because instances live at one of them, None if none does."""
        old = [Pick.model_validate(each) for each in (olds or {}).get("choices") or ()]
        if not old or has_unknown(request.stackId):
            return None
        live = machines.live(self._api.instances(), request.stackId)
        named = [p for p in old if request.names(p) and any(machines.is_at(m, p) for m in live)]
        if not named:
            return None
        if excess := request.excess(named[0].hourly_cost):
            raise ChoiceError(
                excess.setting,
                f"{request.count} x {named[0]}, where the stack's instances are: {excess}; raise "
                "it, ask for fewer instances, or destroy first",
            )
        return [
            p for p in old if p in named or (request.names(p) and not request.excess(p.hourly_cost))
        ]


class SshKeyProvider(_Provider[SshKeyArgs]):
    """A key in the account, and its private part in a file here.

    The public key's comment in the account says which stack put it there, and whether the stack
    made the pair as well: an interrupted create recognizes its own.
    """

    replaces = ("name", "keyFile")

    def check(self, _olds: Props, news: Props) -> dynamic.CheckResult:
        """Check the file if it exists: nobody could log in to an instance that is billed."""
        path, faults = Path(news["keyFile"]).expanduser(), []
        try:
            pair = keys.read(path)
        except KeyFileError as error:
            faults.append(str(error))
        else:
            if pair is not None and not pair.private and not agent_holds(pair.public):
                faults.append(
                    f"{path} has a passphrase, and no SSH agent holds it: "
                    f'eval "$(ssh-agent)"; ssh-add {path}'
                )
        return dynamic.CheckResult(news, [dynamic.CheckFailure("keyFile", f) for f in faults])

    def diff(self, _id: str, _olds: Props, _news: Props) -> dynamic.DiffResult:
        """Another name or file is another key; instances have to be launched with it."""
        return super().diff(_id, _olds, {key: _news[key] for key in self.replaces})

    def make(self, args: SshKeyArgs) -> tuple[str, Props]:
        """Adopt the key, or upload the public key of the file, or make both.

        Raises:
            KeyFileError: account and file do not belong together.
        """
        path = Path(args.keyFile).expanduser()
        pair, held = keys.read(path), self._held(args.name)
        if held is not None and pair is None and _is_of(held, args):
            self._api.delete_ssh_key(held.id)  # of an interrupted create; its file is missing
            held = None
        if held is not None:
            return _key(args, held, _matching(held, pair, path))
        generated = pair is None
        pair = pair or keys.generate()
        say(f"Adding key name {args.name}")
        mark = identity.Mark(stack=args.stackId, backend=args.backendId, generated=generated)
        comment = identity.key_comment(mark)
        added = self._add(args.name, " ".join([*pair.public.split()[:2], comment]))
        if generated:
            # The file is last: without a key in the account, nothing marks it as ours.
            try:
                keys.write(path, pair)
            except KeyFileError:
                self._api.delete_ssh_key(added.id)
                raise
        return _key(args, added, pair)

    def find(self, props: Props) -> dynamic.CreateResult | None:
        """Return the key that an interrupted create put into the account, if its file is there."""
        args = SshKeyArgs.of(props)
        held, path = self._held(args.name), Path(args.keyFile).expanduser()
        if held is None or not _is_of(held, args) or (pair := keys.read(path)) is None:
            return None
        id_, outs = _key(args, held, _matching(held, pair, path))
        return dynamic.CreateResult(id_, {**props, **outs})

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        held = self._held(SshKeyArgs.of(props).name)
        there = held is not None and keys.same(held.public_key, props["publicKey"])
        return seen(id_, props if there else None)

    def delete(self, _id: str, _props: Props) -> None:
        """Remove this resource's key from the account and its file from this machine."""
        args = SshKeyArgs.of(_props)
        if not _props["owned"]:
            say(f"kept: the SSH key {args.name}, which was in the account before")
            return
        held = self._held(args.name)
        if held is not None and held.id == _id:
            self._api.delete_ssh_key(_id)
        path = Path(args.keyFile).expanduser()
        if _props["fileOwned"] and keys.remove(path, _props["privateKey"]):
            say(f"Removed {path}")

    def _add(self, name: str, public: str) -> SshKey:
        try:
            added = self._api.add_ssh_key(name, public)
        except (LostReplyError, ServerError):
            held = self._held(name)
            if held is None or not keys.same(held.public_key, public):
                raise
            return held
        return added.model_copy(update={"public_key": public})

    def _held(self, name: str) -> SshKey | None:
        return next((key for key in self._api.ssh_keys() if key.name == name), None)


class FirewallRulesetProvider(_Provider[FirewallRulesetArgs]):
    """The same rules as one ruleset in each region where instances may be launched."""

    def check(self, _olds: Props, news: Props) -> dynamic.CheckResult:
        """Say which ports are open to whom, in the preview too."""
        for title, rules in itertools.groupby(news["rules"], _title):
            networks = [rule["sourceNetwork"] for rule in rules]
            everybody = "EVERYBODY: " if EVERYBODY in networks else ""
            say(f"{title} is open to {everybody}{', '.join(networks)}")
        return dynamic.CheckResult(news, [])

    def diff(self, _id: str, _olds: Props, _news: Props) -> dynamic.DiffResult:
        """Rules and regions change in place: a new ruleset would need new instances."""
        before, after = FirewallRulesetArgs.of(_olds), FirewallRulesetArgs.of(_news)
        lacking = has_unknown(after.regions) or not {*after.regions} <= {*_olds["ids"]}
        return dynamic.DiffResult(changes=lacking or _rules(before) != _rules(after))

    def make(self, args: FirewallRulesetArgs) -> tuple[str, Props]:
        """Make the rulesets, or take over those that an interrupted create made."""
        return args.stackId, {"ids": self._write(args)}

    def find(self, props: Props) -> dynamic.CreateResult | None:
        """Return the rulesets of an interrupted create; an update adds missing regions."""
        args = FirewallRulesetArgs.of(props)
        ids = {region: ruleset.id for region, ruleset in self._held(args).items()}
        return dynamic.CreateResult(args.stackId, {**props, "ids": ids}) if ids else None

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Read rules and regions back; differences are shown, and an update corrects them."""
        args = FirewallRulesetArgs.of(props)
        held = self._held(args)
        ids = {region: held[region].id for region in props["ids"] if region in held}
        found = [held[region].rules for region in sorted(ids)]
        differing = [rules for rules in found if rules != _rules(args)]
        shown = {"rules": [_shown(rule) for rule in differing[0]]} if differing else {}
        return seen(id_, {**props, **shown, "ids": ids} if ids else None)

    def update(self, _id: str, _olds: Props, _news: Props) -> dynamic.UpdateResult:
        """Change the rules; add regions. Rulesets of other regions go with the stack.

        Instances of the old choice may still use them here.
        """
        ids = {**_olds["ids"], **self._write(FirewallRulesetArgs.of(_news))}
        return dynamic.UpdateResult({**_news, "ids": ids})

    def delete(self, _id: str, _props: Props) -> None:
        """Remove the rulesets, once no instance uses them."""
        machines.terminate_strays(self._api, _props["stackId"], self._clock)
        for ruleset_id in _props["ids"].values():
            _when_unused(ruleset_id, self._api.delete_firewall_ruleset, self._clock)

    def _write(self, args: FirewallRulesetArgs) -> dict[str, str]:
        held, rules = self._held(args), _rules(args)
        for ruleset in held.values():
            if ruleset.rules != rules:
                self._api.update_firewall_ruleset(ruleset.id, rules, ruleset.name)
        mark = identity.Mark(stack=args.stackId, backend=args.backendId)
        for region in args.regions:
            if region not in held:
                name = identity.resource_name(args.name, mark, region)
                held[region] = self._api.create_firewall_ruleset(name, region, rules)
        return {region: ruleset.id for region, ruleset in held.items()}

    def _held(self, args: FirewallRulesetArgs) -> dict[str, FirewallRuleset]:
        return {
            ruleset.region: ruleset
            for ruleset in self._api.firewall_rulesets()
            if identity.mark_in_name(ruleset.name).stack == args.stackId
        }


class FileSystemProvider(_Provider[FileSystemArgs]):
    """A file system that instances mount. It holds the user's data: kept unless told otherwise."""

    def diff(self, _id: str, _olds: Props, _news: Props) -> dynamic.DiffResult:
        """Another name or region is another file system; whether it is kept is only noted."""
        replaces = [key for key in ("name", "region") if _olds[key] != _news[key]]
        changed = bool(replaces) or _olds["keep"] != _news["keep"]
        return dynamic.DiffResult(changes=changed, replaces=replaces)

    def make(self, args: FileSystemArgs) -> tuple[str, Props]:
        """Make the file system, or adopt the one of that name.

        Raises:
            LambdaError: it is in another region.
        """
        name, region = args.name, args.region
        held = next((each for each in self._api.file_systems() if each.name == name), None)
        if held is not None and held.region != region:
            raise LambdaError(
                f"the account has a file system {name} in {held.region}, not in {region}; "
                "instances mount those of their own region: name another"
            )
        system = held or self._api.create_file_system(name, region)
        return system.id, {"mountPoint": system.mount_point, "owned": held is None}

    def exists(self, id_: str, _args: FileSystemArgs) -> bool:
        return any(held.id == id_ for held in self._api.file_systems())

    def update(self, _id: str, _olds: Props, _news: Props) -> dynamic.UpdateResult:
        return dynamic.UpdateResult({**_olds, **_news})

    def delete(self, _id: str, _props: Props) -> None:
        """Remove the file system if this resource made it and it is not to be kept."""
        args = FileSystemArgs.of(_props)
        if _props["owned"] and not args.keep:
            _when_unused(_id, self._api.delete_file_system, self._clock)
        else:
            say(
                f"kept: file system {args.name} in {args.region}, with its data; it is billed by "
                "size (remove it on the account's page when you no longer need it)"
            )


class InstanceProvider(_Provider[Order]):
    """One instance.

    `choices` are tried in order by the first instance that a stack launches; the others go where it
    is, now and in every later `up`. So a refused launch costs no second `up`, one region holds all
    instances, and the choice stays. The outputs tell where the instance is.
    """

    replaces = ("sshKeyName", "fileSystemMounts", "stackId", "node")

    def diff(self, _id: str, _olds: Props, _news: Props) -> dynamic.DiffResult:
        """A live instance can get another name, nothing else.

        Tags, host name and user data cannot change on a live instance, and a change of them must
        not replace one: they count from the next launch on.
        """
        compared = {key: _news[key] for key in (*self.replaces, "name", "ttlHours")}
        # A stack keeps its id, which is unknown while its Account changes in another value.
        if has_unknown(_news["stackId"]):
            del compared["stackId"]
        found = super().diff(_id, _olds, compared)
        found.replaces = replaces = [*(found.replaces or ())]
        here = _olds["instanceType"], _olds["region"]
        # Values that a preview does not know yet must not announce that machines will be lost.
        if not has_unknown(_news["choices"]) and here not in [
            (each["instanceType"], each["region"]) for each in _news["choices"]
        ]:
            replaces.append("choices")
        if not has_unknown(_news["firewallRulesetIds"]):
            ruleset = _news["firewallRulesetIds"].get(_olds["region"], "")
            if ruleset != _olds["firewallRulesetId"]:
                replaces.append("firewallRulesetIds")
        if not _olds["healthy"]:
            replaces.append("healthy")
        found.changes = found.changes or bool(replaces)
        return found

    def make(self, args: Order) -> tuple[str, Props]:
        """Launch the instance, or take over the one that an interrupted create launched."""
        id_, pick = machines.launch(self._api, args, self._clock)
        return id_, _launched(pick, args)

    def find(self, props: Props) -> dynamic.CreateResult | None:
        """Return the instance that an interrupted create launched."""
        order = Order.of(props)
        if (found := machines.find(self._api, order, self._clock)) is None:
            return None
        id_, pick = found
        return dynamic.CreateResult(id_, {**props, **_launched(pick, order)})

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Ask for the instance; one that has ended is gone, an unhealthy one is to be replaced."""
        machine = machines.look_up(self._api, id_)
        if machine is None:
            return seen(id_, None)
        healthy = machine.status not in machines.DEAD
        return seen(id_, {**props, "name": machine.name, "healthy": healthy})

    def update(self, _id: str, _olds: Props, _news: Props) -> dynamic.UpdateResult:
        if _olds["name"] != _news["name"]:
            self._api.rename(_id, _news["name"])
        return dynamic.UpdateResult({**_olds, **_news})

    def delete(self, _id: str, _props: Props) -> None:
        """End the instance, and wait until the API says that it has ended."""
        say(f"Terminating instance {_id} ({_props['name']})")
        machines.terminate(self._api, [_id], self._clock)


class ActiveProvider(_Provider[ActiveArgs]):
    """The wait for all instances of a stack at once; it exists in the state only."""

    def diff(self, _id: str, _olds: Props, _news: Props) -> dynamic.DiffResult:
        """Wait again when there are other instances, or one has lost its address."""
        there = {id_ for id_, address in _olds["addresses"].items() if address["ip"]}
        found = super().diff(_id, _olds, _news)
        found.changes = found.changes or not there.issuperset(_news["instanceIds"])
        return found

    def make(self, args: ActiveArgs) -> tuple[str, Props]:
        limit = args.timeoutMinutes * 60
        found = machines.await_active(self._api, args.instanceIds, limit, self._clock)
        return "active", {"addresses": {id_: _address(found[id_]) for id_ in found}}

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Read the addresses again; without those of instances that are gone."""
        there = {m.id: m for m in self._api.instances() if m.status not in machines.ENDED}
        ids = ActiveArgs.of(props).instanceIds
        found = {each: _address(there[each]) for each in ids if each in there}
        return dynamic.ReadResult(id_, {**props, "addresses": found})


def _failure(error: LambdaError) -> dynamic.CheckFailure:
    """Return why the account cannot be asked; for a key, also its possible sources."""
    if not isinstance(error, AccessError) or error.status is None:
        return dynamic.CheckFailure(API_KEY, str(error))
    sources = f"{', '.join(KEY_VARIABLES)} or the setting {API_KEY}"
    return dynamic.CheckFailure(API_KEY, f"{error}. The key is that of {sources}")


def _when_unused(id_: str, delete: Callable[[str], None], clock: machines.Clock) -> None:
    """Delete a thing that an instance that has just ended may still seem to use."""
    deadline = clock.now() + clock.limit(IN_USE_LIMIT_SECONDS)
    with contextlib.suppress(NotFoundError):
        while True:
            try:
                return delete(id_)
            except InUseError:
                if clock.now() >= deadline:
                    raise
                clock.sleep(IN_USE_STEP_SECONDS * clock.scale)


def _matching(held: SshKey, pair: KeyPair | None, path: Any) -> KeyPair:
    """Return the key pair of a file, which has to be that of the account's key."""
    if pair is None:
        raise KeyFileError(
            f"the account has a key named {held.name}, but {path} is not there; put its private "
            "key there (mode 0600), or choose another name"
        )
    if not keys.same(held.public_key, pair.public):
        raise KeyFileError(
            f"the account's key {held.name} is not that of {path}; it is left alone: choose "
            "another name, or name its own private key in sshKeyFile"
        )
    return pair


def _is_of(held: SshKey, args: SshKeyArgs) -> bool:
    """Return whether a stack put this key into the account."""
    return bool(args.stackId) and identity.mark_in_key(held.public_key).stack == args.stackId


def _key(args: SshKeyArgs, held: SshKey, pair: KeyPair) -> tuple[str, Props]:
    owned = _is_of(held, args)
    marks = {"owned": owned, "fileOwned": owned and identity.mark_in_key(held.public_key).generated}
    return held.id, {"publicKey": pair.public, "privateKey": pair.private, **marks}


def _title(rule: Mapping[str, Any]) -> str:
    first, last = rule["firstPort"], rule["lastPort"]
    ports = f"port {first:g}" if first == last else f"ports {first:g} to {last:g}"
    return f"{rule['description']} ({ports})"


def _rules(args: FirewallRulesetArgs) -> list[FirewallRule]:
    return [
        FirewallRule(
            protocol=rule["protocol"],
            source_network=rule["sourceNetwork"],
            description=rule["description"],
            port_range=(int(rule["firstPort"]), int(rule["lastPort"])),
        )
        for rule in args.rules
    ]


def _shown(rule: FirewallRule) -> Props:
    first, last = rule.port_range or (0, 0)
    return {
        "protocol": rule.protocol,
        "sourceNetwork": rule.source_network,
        "description": rule.description or "",
        "firstPort": first,
        "lastPort": last,
    }


def _launched(pick: Pick, order: Order) -> Props:
    return {
        **pick.model_dump(by_alias=True, include={"instance_type", "region", "hourly_cost"}),
        "firewallRulesetId": order.firewallRulesetIds.get(pick.region, ""),
        "healthy": True,
        "launchedAt": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _address(machine: Machine) -> Props:
    return {"ip": machine.ip or "", "privateIp": machine.private_ip or ""}
