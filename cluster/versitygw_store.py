"""versitygw as an object store: a gateway that keeps objects as plain files.

Deliberately absent: figures for Prometheus. It sends some by StatsD, which nothing here collects.
"""

import json
from collections.abc import Mapping

import pulumi

from cluster.inputs import join
from cluster.minio_admin import RootArgs
from cluster.service import HealthCheck, Runtime, Service, Volume
from cluster.store_kind import Keys, StoreKind, ports, statements
from cluster.versitygw_admin import Bucket, StoreUser, StoreUserArgs

NAME = "versitygw"
DATA = Volume(name="data", keep=True)
META = Volume(name="meta", keep=True)  # users, and attributes where the file system keeps none
HEALTH_PATH = "/_health"  # no bucket can have this name


class Versitygw(StoreKind):
    """versitygw."""

    name = NAME
    title = "versitygw"
    bucket = Bucket
    metrics: Mapping[str, str] = {}

    def service(self, runtime: Runtime, port: int, console_port: int, root: Keys) -> Service:
        listen = runtime.listen_address(NAME)
        data = runtime.volume(NAME, DATA)
        return Service(
            name=NAME,
            program=NAME,
            arguments=[
                "--port",
                join(listen, f":{port}"),
                "--webui",
                join(listen, f":{console_port}"),
                # The address that the console's pages call, from the browser, and their own.
                "--webui-gateways",
                join("http://", runtime.public(NAME, port)),
                "--cors-allow-origin",
                join("http://", runtime.public(NAME, console_port)),
                "--health",
                HEALTH_PATH,
                # Without --keep-alive: 1.8.0 may leave the last bytes of pyarrow's chunked bodies
                # unread, and takes them for the connection's next request.
                "--disable-acl",
                "--quiet",
                "posix",
                "--file-perms=0600",
                "--dir-perms=0700",
                data,
            ],
            environment={  # for docker/versitygw/start.go
                "ROOT_ACCESS_KEY_ID_FILE": runtime.file(NAME, "root-user"),
                "ROOT_SECRET_ACCESS_KEY_FILE": runtime.file(NAME, "root-password"),
                "TRAINYARD_STORE_DATA": data,
                "TRAINYARD_STORE_META": runtime.volume(NAME, META),
            },
            secrets={"root-user": root.access, "root-password": root.secret},
            volumes=[DATA, META],
            ports=ports(port, console_port),
            health=[HealthCheck(port=port, path=HEALTH_PATH)],
        )

    def training_user(
        self, name: str, root: RootArgs, bucket: str, keys: Keys, opts: pulumi.ResourceOptions
    ) -> pulumi.Resource:
        args = StoreUserArgs(
            **vars(root),
            accessKey=keys.access,
            secretKey=keys.secret,
            bucket=bucket,
            former=keys.former,
            statements=json.dumps(statements(bucket)),  # the user's name is filled in
        )
        return StoreUser(name, args, opts)

    def metrics_token(
        self, name: str, root: RootArgs, keys: Keys, opts: pulumi.ResourceOptions
    ) -> pulumi.Output[str]:
        """Deliberately absent: see above."""
        raise NotImplementedError


KIND = Versitygw()
