"""Imports of providers at their first call, in threads of one process."""

import sys

from tests import ran

# A switch of threads after each few steps shows a rare error within three starts.
PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-6)
from cluster.minio_admin import BucketProvider, StoreUserProvider
from cluster.versitygw_admin import StoreUserProvider as OtherUserProvider
gone = {"endpoint": "127.0.0.1:1", "rootUser": "u", "rootPassword": "p", "bucket": "bucket",
        "accessKey": "a", "secretKey": "s", "policy": "{}", "statements": "[]"}
barrier, found = threading.Barrier(3), []
def read(provider):
    barrier.wait()
    found.append(provider.read("x", gone).id)
threads = [threading.Thread(target=read, args=(each(),))
           for each in (BucketProvider, StoreUserProvider, OtherUserProvider)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert found == ["", "", ""], found
"""


def test_providers_that_are_first_called_at_once_import_what_they_need():
    for _ in range(3):
        ran.output([sys.executable, "-c", PROGRAM])
