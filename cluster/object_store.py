"""The object store: MinIO, one bucket, and a user that may touch only that bucket."""

import json
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster.inputs import join
from cluster.minio_admin import Bucket, StoreUser
from cluster.secret import Secret
from cluster.service import HealthCheck, Port, Runtime, Service, Volume

SERVICE = "minio"
REGION = "us-east-1"  # MinIO's own default
DATA = Volume(name="data", keep=True)
CERTIFICATES = Volume(name="certs")
ROOT_USER = "trainyard-root"
TRAINING_USER = "training"
MONITORING_USER = "monitoring"
SECRET_BYTES = 20  # MinIO takes at most 40 characters


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where jobs keep their results: a bucket, or a folder of this machine.

    Attributes:
        url: s3://<bucket> or file:///<folder>.
        endpoint: URL of the S3 API for users, "" for a folder.
        internal: host:port of the S3 API for other services, "" for a folder.
        bucket: name of the bucket, "" for a folder.
        access_key: of the user that may touch only that bucket, "" for a folder.
        secret_key: its secret, "" for a folder.
        metrics_secret: secret key of the user that may only read metrics, "" for a folder.
    """

    url: str
    endpoint: pulumi.Input[str] = ""
    internal: pulumi.Input[str] = ""
    bucket: str = ""
    access_key: str = ""
    secret_key: pulumi.Input[str] = ""
    metrics_secret: pulumi.Input[str] = ""


@dataclass(frozen=True, kw_only=True)
class ObjectStoreArgs:
    """Arguments of an object store.

    Attributes:
        runtime: where it runs.
        bucket: name of the bucket.
        port: TCP port of the S3 API.
        console_port: TCP port of the web console.
    """

    runtime: Runtime
    bucket: str
    port: int
    console_port: int

    def __post_init__(self) -> None:
        if self.port == self.console_port:
            raise ValueError(f"S3 API and console cannot both listen on port {self.port}")


class ObjectStore(pulumi.ComponentResource):
    """MinIO with its bucket and users.

    Root credentials are drawn at random, reach MinIO as files, and leave this component only as
    secret inputs of the resources that it makes inside MinIO.

    Attributes:
        url: s3://<bucket>.
    """

    url: pulumi.Output[str]
    storage: Storage

    def __init__(
        self, name: str, args: ObjectStoreArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:ObjectStore", name, None, opts)
        runtime = args.runtime
        child = pulumi.ResourceOptions(parent=self)
        root = Secret(f"{name}-root", SECRET_BYTES, child)
        training = Secret(f"{name}-{TRAINING_USER}", SECRET_BYTES, child)
        monitoring = Secret(f"{name}-{MONITORING_USER}", SECRET_BYTES, child)
        minio = runtime.place(
            Service(
                name=SERVICE,
                program="minio",
                arguments=[
                    "server",
                    runtime.volume(SERVICE, DATA),
                    "--address",
                    join(runtime.listen_address(SERVICE), f":{args.port}"),
                    "--console-address",
                    join(runtime.listen_address(SERVICE), f":{args.console_port}"),
                    # Certificates in the user's home would turn MinIO to TLS.
                    "--certs-dir",
                    runtime.volume(SERVICE, CERTIFICATES),
                ],
                environment={
                    "MINIO_ROOT_USER_FILE": runtime.file(SERVICE, "root-user"),
                    "MINIO_ROOT_PASSWORD_FILE": runtime.file(SERVICE, "root-password"),
                    "MINIO_UPDATE": "off",  # asks the network for a newer release at every start
                    # It makes an empty folder .minio there, whatever else it is told.
                    "HOME": runtime.volume(SERVICE, CERTIFICATES),
                },
                secrets={"root-user": ROOT_USER, "root-password": root.value},
                volumes=[DATA, CERTIFICATES],
                ports=[
                    Port(number=args.port, setting="objectStorePort", published=True),
                    Port(
                        number=args.console_port, setting="objectStoreConsolePort", published=True
                    ),
                ],
                health=[HealthCheck(port=args.port, path="/minio/health/ready")],
            ),
            child,
        )
        credentials: dict[str, pulumi.Input[Any]] = {
            "endpoint": runtime.published(SERVICE, args.port),
            "rootUser": ROOT_USER,
            "rootPassword": root.value,
        }
        if runtime.via is not None:
            credentials["via"] = runtime.via
        inside = pulumi.ResourceOptions(parent=self, depends_on=[minio])
        # Never deleted: the provider keeps it, whatever it holds are results of training.
        Bucket(f"{name}-bucket", {**credentials, "bucket": args.bucket}, inside)
        for user, secret, policy in (
            (TRAINING_USER, training, bucket_policy(args.bucket)),
            (MONITORING_USER, monitoring, METRICS_POLICY),
        ):
            StoreUser(
                f"{name}-{user}-user",
                {
                    **credentials,
                    "accessKey": user,
                    "secretKey": secret.value,
                    "policy": json.dumps(policy),
                },
                inside,
            )
        self.storage = Storage(
            url=f"s3://{args.bucket}",
            endpoint=join("http://", runtime.public(SERVICE, args.port)),
            internal=runtime.address(SERVICE, args.port),
            bucket=args.bucket,
            access_key=TRAINING_USER,
            secret_key=training.value,
            metrics_secret=monitoring.value,
        )
        self.url = pulumi.Output.from_input(self.storage.url)
        self.register_outputs({"url": self.url})


def environment(storage: Storage, credentials_file: str) -> dict[str, pulumi.Input[str]]:
    """Return what S3 clients of a service find the bucket by; nothing for a folder.

    Args:
        storage: the bucket.
        credentials_file: path of a file with `credentials`.
    """
    if not storage.bucket:
        return {}
    return {
        "AWS_SHARED_CREDENTIALS_FILE": credentials_file,
        "AWS_ENDPOINT_URL": join("http://", storage.internal),
        "AWS_REGION": REGION,
    }


def credentials(storage: Storage) -> pulumi.Output[str]:
    """Return the file of S3 clients that holds the keys to the bucket."""
    return pulumi.Output.secret(
        pulumi.Output.format(
            "[default]\naws_access_key_id = {0}\naws_secret_access_key = {1}\n",
            storage.access_key,
            storage.secret_key,
        )
    )


def bucket_policy(bucket: str) -> dict[str, Any]:
    """Return the policy of a user that may read and write one bucket and nothing else."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [
                    "s3:GetBucketLocation",
                    "s3:ListBucket",
                    "s3:ListBucketMultipartUploads",
                ],
                "Resource": [f"arn:aws:s3:::{bucket}"],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "s3:GetObject",
                    "s3:PutObject",
                    "s3:DeleteObject",
                    "s3:AbortMultipartUpload",
                    "s3:ListMultipartUploadParts",
                ],
                "Resource": [f"arn:aws:s3:::{bucket}/*"],
            },
            # MinIO lets every user make service accounts, which once escaped their parent's policy.
            {"Effect": "Deny", "Action": ["admin:*"]},
        ],
    }


METRICS_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["admin:Prometheus"]}],
}
