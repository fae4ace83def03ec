"""Instances of an account of Lambda Cloud without a network, in place of the client's."""

from infra.places.lambda_cloud.errors import NotFoundError
from infra.places.lambda_cloud.model import Machine


class PlainAccount:
    """Instances by id, which end at once."""

    def __init__(self) -> None:
        self.held: dict[str, Machine] = {}
        self.ended: list[str] = []

    def add(
        self,
        id_: str,
        region: str = "us-east-1",
        tags: dict[str, str] | None = None,
        status: str = "booting",
    ) -> None:
        self.held[id_] = Machine.model_validate(
            {
                "id": id_,
                "name": id_,
                "status": status,
                "region": {"name": region},
                "instance_type": {"name": "gpu_1x_a10", "price_cents_per_hour": 75},
                "tags": [{"key": key, "value": value} for key, value in (tags or {}).items()],
            }
        )

    def set(self, id_: str, **fields: str) -> None:
        self.held[id_] = self.held[id_].model_copy(update=fields)

    def instances(self) -> list[Machine]:
        return list(self.held.values())

    def instance(self, id_: str) -> Machine:
        if id_ not in self.held:
            raise NotFoundError("no such instance")
        return self.held[id_]

    def terminate(self, id_: str) -> None:
        self.instance(id_)
        del self.held[id_]
        self.ended.append(id_)
