"""Calls to the administration of a running versitygw."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.sax.saxutils import escape

import urllib3
from minio.credentials.credentials import Credentials
from minio.error import S3Error
from minio.signer import sign_v4_s3

from cluster.s3_calls import GONE, asked, client, pool, reached
from cluster.versitygw_admin import StoreUserArgs

REGION = "us-east-1"
ROLE = "user"  # the least: owns no bucket and makes none
EXISTS, NOT_FOUND = 409, 404
NO_POLICY = ("NoSuchBucket", "NoSuchBucketPolicy")


class AdminError(Exception):
    """versitygw refused a call."""


def write_user(args: StoreUserArgs) -> None:
    """Write user and bucket's policy; both overwrite the leftovers of an earlier attempt."""
    access, secret = args.accessKey, args.secretKey
    account = (
        f"<Account><Access>{escape(access)}</Access><Secret>{escape(secret)}</Secret>"
        f"<Role>{ROLE}</Role><UserID>0</UserID><GroupID>0</GroupID></Account>"
    )
    with reached(args) as there:
        made = _call(there, "create-user", account)
        if made.status == EXISTS:
            changed = f"<MutableProps><Secret>{escape(secret)}</Secret></MutableProps>"
            made = _call(there, f"update-user?{urlencode({'access': access})}", changed)
        if made.status >= 300:
            raise AdminError(f"versitygw does not take the user: {_said(made)}")
        # The former key stays valid until its user is removed.
        keys, former = [access], args.former
        if former and _is_named(there, former):
            keys.append(former)
        policy = {
            "Version": "2012-10-17",
            "Statement": [
                {**statement, "Principal": {"AWS": keys}}
                for statement in json.loads(args.statements)
            ],
        }
        client(there).set_bucket_policy(bucket_name=args.bucket, policy=json.dumps(policy))


def has_user(args: StoreUserArgs) -> bool:
    """Return whether the user is there, and the bucket's policy names it.

    A store that does not answer has no users.
    """
    access = args.accessKey

    def look(there: StoreUserArgs) -> bool:
        named = _is_named(there, access, retries=0)
        try:
            policy = client(there, retries=0).get_bucket_policy(bucket_name=args.bucket)
        except S3Error as error:
            if error.code not in NO_POLICY:
                raise
            return False
        return named and access in policy

    return bool(asked(args, look))


def remove_user(args: StoreUserArgs, key: str) -> bool:
    """Remove the user of an access key; the policy that names it then applies to nobody.

    Returns:
        False if versitygw does not answer.
    """
    try:
        with reached(args) as there:
            gone = _call(there, f"delete-user?{urlencode({'access': key})}", retries=0)
    except GONE:
        return False
    if gone.status >= 300 and gone.status != NOT_FOUND:
        raise AdminError(f"versitygw does not remove the user: {_said(gone)}")
    return True


def _is_named(there: StoreUserArgs, access: str, retries: int = 3) -> bool:
    """Return whether the list of users has one with this key."""
    users = _call(there, "list-users", retries=retries)
    if users.status >= 300:
        raise AdminError(f"versitygw does not list its users: {_said(users)}")
    return f"<Access>{access}</Access>".encode() in users.data


def _call(
    args: StoreUserArgs, target: str, body: str = "", retries: int = 3
) -> urllib3.BaseHTTPResponse:
    url = f"http://{args.endpoint}/{target}"
    digest = sha256(body.encode()).hexdigest()
    date = datetime.now(UTC)
    headers: dict[str, Any] = {
        "Host": args.endpoint,
        "X-Amz-Content-Sha256": digest,
        "X-Amz-Date": date.strftime("%Y%m%dT%H%M%SZ"),
    }
    sign_v4_s3(
        method="PATCH",
        url=urlsplit(url),
        region=REGION,
        headers=headers,
        credentials=Credentials(args.rootUser, args.rootPassword),
        content_sha256=digest,
        date=date,
    )
    return pool(retries).request("PATCH", url, headers=headers, body=body.encode())


def _said(answer: urllib3.BaseHTTPResponse) -> str:
    return f"{answer.status} {answer.data.decode(errors='replace').strip()}"
