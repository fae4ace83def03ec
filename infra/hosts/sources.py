"""All sources of machines; the only module that names them.

A source is imported with its settings alone. They import anything else, such as an HTTP client,
when it is used: a stack of this machine does not pay for it.
"""

from infra.hosts.fleet import Cloud, Source
from infra.hosts.lambda_cloud.settings import LAMBDA
from infra.hosts.ssh.settings import HOSTS
from infra.reader import Reader

SOURCES: tuple[Source, ...] = (HOSTS, LAMBDA)
CLOUDS: tuple[Cloud, ...] = tuple(source.cloud for source in SOURCES if source.cloud)
KEYS = {source.setting for source in SOURCES} | {cloud.api_key for cloud in CLOUDS}


def renting(reader: Reader) -> str:
    """Return the setting that asks for rented machines, "" for none."""
    found = [source.setting for source in SOURCES if source.cloud and source.asked(reader)]
    return next(iter(found), "")
