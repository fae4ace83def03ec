"""Calls to the administration of a running MinIO."""

import json

from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from minio.minioadmin import MinioAdmin

from cluster.minio_admin import StoreUserArgs
from cluster.s3_calls import GONE, asked, patiently, pool, reached

NO_SUCH = "NoSuch"  # begins the code of each answer about a missing thing


def write_user(args: StoreUserArgs) -> None:
    """Write policy and user; both calls overwrite the leftovers of an earlier attempt."""
    key = args.accessKey
    with reached(args) as there:
        admin = _admin(there)
        patiently(lambda: admin.policy_add(policy_name=key, policy=json.loads(args.policy)))
        patiently(lambda: admin.user_add(key, args.secretKey))
        patiently(lambda: admin.policy_set(key, user=key))


def has_user(args: StoreUserArgs) -> bool:
    """Return whether the user is there with its policy; a store that does not answer has none."""
    key = args.accessKey

    def look(there: StoreUserArgs) -> bool:
        admin = _admin(there, retries=0)
        try:
            user = json.loads(patiently(lambda: admin.user_info(key)))
        except MinioAdminException as error:
            if NO_SUCH not in str(error):
                raise
            return False
        return bool(user.get("policyName") == key)

    return bool(asked(args, look))


def remove_user(args: StoreUserArgs, key: str) -> bool:
    """Remove the user of an access key, and its policy.

    Returns:
        False if MinIO does not answer: one that is gone has neither.
    """
    try:
        with reached(args) as there:
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


def _admin(args: StoreUserArgs, retries: int = 3) -> MinioAdmin:
    return MinioAdmin(
        endpoint=args.endpoint,
        credentials=StaticProvider(args.rootUser, args.rootPassword),
        secure=False,
        http_client=pool(retries),
    )
