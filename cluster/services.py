"""All services that a stack can have, in the order in which they are declared."""

from cluster import (
    alerting,
    dataset,
    gateway,
    grafana,
    idle_end,
    job_queue,
    monitoring,
    notebook,
    object_store,
    page,
    ray_cluster,
    replica,
    tracking,
)
from cluster.descriptor import Endpoint, PortSetting

RAY = ray_cluster.DESCRIPTOR
STORES = object_store.DESCRIPTORS  # by name; a stack has one of them, or none
DATASET = dataset.DESCRIPTOR
ALL = (
    *STORES.values(),
    DATASET,
    alerting.DESCRIPTOR,
    monitoring.DESCRIPTOR,
    grafana.DESCRIPTOR,
    tracking.DESCRIPTOR,
    replica.DESCRIPTOR,
    RAY,  # others' additions to its nodes are known by now
    job_queue.DESCRIPTOR,
    notebook.DESCRIPTOR,
    idle_end.DESCRIPTOR,  # it knows the notebook
    page.DESCRIPTOR,
    gateway.DESCRIPTOR,
)
# Ray's first: of two settings with the same number the later one is to be changed.
PORTS: dict[str, PortSetting] = {port.key: port for each in (RAY, *ALL) for port in each.ports}
ENDPOINTS: tuple[Endpoint, ...] = tuple(
    dict.fromkeys(endpoint for each in (RAY, *ALL) for endpoint in each.endpoints)
)
