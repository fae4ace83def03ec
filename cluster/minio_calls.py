"""Calls to the administration of a running MinIO, from the properties that its users hold.

Properties: those of `s3_calls`; accessKey, secretKey, policy.
"""

import json
from typing import Any

from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from minio.minioadmin import MinioAdmin

from cluster.s3_calls import GONE, asked, patiently, pool, reached

NO_SUCH = "NoSuch"  # begins the code of each answer about a missing thing


def write_user(props: dict[str, Any]) -> None:
    """Write policy and user; both calls overwrite the leftovers of an earlier attempt."""
    key = props["accessKey"]
    with reached(props) as there:
        admin = _admin(there)
        patiently(lambda: admin.policy_add(policy_name=key, policy=json.loads(props["policy"])))
        patiently(lambda: admin.user_add(key, props["secretKey"]))
        patiently(lambda: admin.policy_set(key, user=key))


def has_user(props: dict[str, Any]) -> bool:
    """Return whether the user is there with its policy; a store that does not answer has none."""
    key = props["accessKey"]

    def look(there: dict[str, Any]) -> bool:
        admin = _admin(there, retries=0)
        try:
            user = json.loads(patiently(lambda: admin.user_info(key)))
        except MinioAdminException as error:
            if NO_SUCH not in str(error):
                raise
            return False
        return bool(user.get("policyName") == key)

    return bool(asked(props, look))


def remove_user(props: dict[str, Any], key: str) -> bool:
    """Remove user and policy.

    Args:
        props: how the root of MinIO is reached.
        key: the user's access key.

    Returns:
        False if MinIO does not answer: one that is gone has neither.
    """
    try:
        with reached(props) as there:
            admin = _admin(there, retries=0)
            for remove in (admin.user_remove, admin.policy_remove):
                try:
                    remove(key)
                except MinioAdminException as error:
                    if NO_SUCH not in str(error):
                        raise
    except GONE:
        return False
    return True


def _admin(props: dict[str, Any], retries: int = 3) -> MinioAdmin:
    return MinioAdmin(
        endpoint=props["endpoint"],
        credentials=StaticProvider(props["rootUser"], props["rootPassword"]),
        secure=False,
        http_client=pool(retries),
    )
