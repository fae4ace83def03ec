"""The providers that all clouds share. A cloud derives its own: a state records their classes."""

import secrets
from typing import Any, ClassVar

from pulumi import dynamic

from cluster.provider import A, Args
from infra.operate import backend
from infra.service.cancellation import WaitingProvider

STACK_ID_BYTES = 4

Props = dict[str, Any]


class CloudProvider(WaitingProvider[A]):
    """The base of a cloud's providers. Pickled without any attribute: configure makes them.

    Attributes:
        api_key: the secret setting that may hold one.
    """

    api_key: ClassVar[str]

    def configure(self, req: dynamic.ConfigureRequest) -> None:
        """Take the API key from the stack's config, where the environment may have none."""
        super().configure(req)
        self._key: str | None = req.config.get(self.api_key)


class AccountArgs(Args):
    """Whose part it is."""

    organization: str
    project: str
    stack: str


class AccountProvider(CloudProvider[AccountArgs]):
    """A stack's part of an account: the ids that mark all its things.

    It is deleted last. A cloud whose launches can be lost then ends what has the stack's id.
    """

    def diff(self, _id: str, _olds: Props, _news: Props) -> dynamic.DiffResult:
        """An id is drawn once; a state that moved is in another backend."""
        here = backend.find(backend.project_folder()).id(_news["organization"])
        return dynamic.DiffResult(changes=not here or here != _olds.get("backendId"))

    def make(self, args: AccountArgs) -> tuple[str, Props]:
        id_ = secrets.token_hex(STACK_ID_BYTES)
        return id_, _marks(id_, args)

    def update(self, _id: str, _olds: Props, _news: Props) -> dynamic.UpdateResult:
        """Note the backend; things that exist keep the mark of the former one."""
        return dynamic.UpdateResult({**_news, **_marks(_id, AccountArgs.of(_news))})


def _marks(id_: str, args: AccountArgs) -> Props:
    backend_id = backend.find(backend.project_folder()).draw_id(args.organization)
    return {"stackId": id_, "backendId": backend_id}
