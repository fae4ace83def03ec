"""MinIO as an object store: its service, its users' rights, and access to its figures."""

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pulumi

from cluster.inputs import join
from cluster.minio_admin import Bucket, RootArgs, StoreUser, StoreUserArgs
from cluster.service import HealthCheck, Runtime, Service, Volume
from cluster.store_kind import Keys, StoreKind, ports, statements

NAME = "minio"
DATA = Volume(name="data", keep=True)
CERTIFICATES = Volume(name="certs")
# MinIO wants an expiry. The token ends with its user, which the stack removes; a fixed date keeps
# it the same from one update to the next.
TOKEN_EXPIRY = 4102444800  # 2100-01-01, seconds since 1970


class Minio(StoreKind):
    """MinIO."""

    name = NAME
    title = "MinIO"
    bucket = Bucket
    metrics: Mapping[str, str] = {
        "object-store": "/minio/v2/metrics/cluster",
        "object-store-buckets": "/minio/v2/metrics/bucket",
    }

    def service(self, runtime: Runtime, port: int, console_port: int, root: Keys) -> Service:
        listen = runtime.listen_address(NAME)
        data = runtime.volume(NAME, DATA)
        return Service(
            name=NAME,
            program=NAME,
            arguments=[
                "server",
                data,
                "--address",
                join(listen, f":{port}"),
                "--console-address",
                join(listen, f":{console_port}"),
                # Certificates in the user's home would turn MinIO to TLS.
                "--certs-dir",
                runtime.volume(NAME, CERTIFICATES),
            ],
            environment={
                "MINIO_ROOT_USER_FILE": runtime.file(NAME, "root-user"),
                "MINIO_ROOT_PASSWORD_FILE": runtime.file(NAME, "root-password"),
                "MINIO_UPDATE": "off",  # asks the network for a newer release at every start
                # It always makes an empty folder .minio there.
                "HOME": runtime.volume(NAME, CERTIFICATES),
                "TRAINYARD_STORE_DATA": data,  # for docker/minio/guard.go
            },
            secrets={"root-user": root.access, "root-password": root.secret},
            volumes=[DATA, CERTIFICATES],
            ports=ports(port, console_port),
            health=[HealthCheck(port=port, path="/minio/health/ready")],
        )

    def training_user(
        self, name: str, root: RootArgs, bucket: str, keys: Keys, opts: pulumi.ResourceOptions
    ) -> pulumi.Resource:
        return _user(name, root, keys, bucket_policy(bucket), opts)

    def metrics_token(
        self, name: str, root: RootArgs, keys: Keys, opts: pulumi.ResourceOptions
    ) -> pulumi.Output[str]:
        _user(name, root, keys, METRICS_POLICY, opts)
        known = pulumi.Output.all(keys.access, keys.secret)
        return pulumi.Output.secret(known.apply(lambda pair: token(*pair)))


def bucket_policy(bucket: str) -> dict[str, Any]:
    """Return the policy of a user that may read and write one bucket and nothing else."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            *(each | {"Resource": [each["Resource"]]} for each in statements(bucket)),
            # MinIO lets every user make service accounts, which once escaped their parent's policy.
            {"Effect": "Deny", "Action": ["admin:*"]},
        ],
    }


METRICS_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["admin:Prometheus"]}],
}


def token(access_key: str, secret_key: str) -> str:
    """Return the bearer token that MinIO's metrics ask for: a JWT signed with the user's key.

    HS512 of RFC 7515 is one HMAC; a library for it would cost every `up` more than all of this.
    """
    header = {"alg": "HS512", "typ": "JWT"}
    claims = {"iss": "prometheus", "sub": access_key, "exp": TOKEN_EXPIRY}
    signed = b".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    signature = hmac.digest(secret_key.encode(), signed, "sha512")
    return b".".join([signed, _encoded(signature)]).decode()


def _encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def _user(
    name: str,
    root: RootArgs,
    keys: Keys,
    policy: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
) -> pulumi.Resource:
    args = StoreUserArgs(
        **vars(root), accessKey=keys.access, secretKey=keys.secret, policy=json.dumps(policy)
    )
    return StoreUser(name, args, opts)


KIND = Minio()
