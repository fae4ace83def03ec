"""Names of a stack's outputs: the whole contract between the program and the client.

URLs and passwords of further services are named by their descriptors (cluster/), and SERVICES says
which of them belong together.
"""

from collections.abc import Mapping

PROJECT = "project"  # this Pulumi project's name
STACK = "stack"  # the stack's name: a client that was given another stack's outputs notices
DASHBOARD_URL = "dashboardUrl"
RAY_TOKEN = "rayToken"  # secret  # noqa: S105 - a name
TRACKING_URL = "trackingUrl"  # the API's and the pages' of MLflow
SERVE_URL = "serveUrl"  # nothing answers there before something is served
SERVE_TOKEN = "serveToken"  # secret  # noqa: S105 - a name
STORAGE_URL = "storageUrl"  # s3://<bucket>, or file:///<folder> when no object store runs
OBJECT_STORE_ENDPOINT = "objectStoreEndpoint"  # "" without an object store
BUCKET = "bucket"  # "" without an object store
ACCESS_KEY = "accessKey"  # secret: of the user that may touch only that bucket, "" without one
SECRET_KEY = "secretKey"  # secret, "" without an object store  # noqa: S105 - a name
RAY_VERSION = "rayVersion"
PYTHON_VERSION = "pythonVersion"  # major.minor of the nodes' Python
# list of {name, group, cpus, gpus, memoryMib, objectStoreMib, resources, onDemand, hourlyCost,
# launched}
NODES = "nodes"
# {} where the services run on this machine; else secret: {host, port, user, hostKey, keyFile,
# privateKey} of the machine that all addresses refer to.
SSH = "ssh"
# {} where the services are in no cluster; else {kubeconfig, context, namespace, rayCluster (its
# name), services (name of the Service by port)}: addresses are those that kubectl forwards to.
KUBERNETES = "kubernetes"
CONNECTIONS = (SSH, KUBERNETES)
CONTAINER_PREFIX = "containerPrefix"  # what names of containers begin with; "" without one
QUEUE = "queue"  # "true" where the dashboard's URL is a queue's; "" elsewhere
OWNER = "owner"  # whose the stack is, as its labels and tags have it
RESERVED_FROM = "reservedFrom"  # ISO 8601, UTC: when the reservation begins; "" without one
# Seconds after which Ray fails a job that could not start; 0 for never.
JOB_START_TIMEOUT_SECONDS = "jobStartTimeoutSeconds"
EXPIRES_AT = "expiresAt"  # ISO 8601, UTC: when the services or machines end themselves; "": never
# Folder on the machine of SSH with the files that name the requested machines of an elastic group;
# "" without such a group.
REQUESTS_FOLDER = "requestsFolder"
VOLUMES = "volumes"  # text: the folders from outside, with their mounts
IDLE_END_URL = "idleEndUrl"  # of the idle watch; "" without idleEnd
IDLE_END_TOKEN = "idleEndToken"  # secret  # noqa: S105 - a name
RAY_CLUSTER_FILE = "rayClusterFile"  # secret: for `ray up`; "" where the cluster is this machine's
# list of {title, url, login, user}: names of the outputs with a service's URL, "" where it does not
# run, and with its password or token, "" for none; the user to log in as, "" for a token.
SERVICES = "services"

# Those that are text.
TEXTS = (
    VOLUMES,
    *(PROJECT, STACK, DASHBOARD_URL, RAY_TOKEN, STORAGE_URL, OBJECT_STORE_ENDPOINT, BUCKET),
    *(ACCESS_KEY, SECRET_KEY, SERVE_URL, SERVE_TOKEN, RAY_VERSION, PYTHON_VERSION, EXPIRES_AT),
    *(RAY_CLUSTER_FILE, OWNER, RESERVED_FROM, CONTAINER_PREFIX, QUEUE),
)
# All that the client needs, with the values of a cluster that has nothing of it.
NOTHING: Mapping[str, object] = {
    **dict.fromkeys(TEXTS, ""),
    **{connection: {} for connection in CONNECTIONS},
    NODES: [],
    SERVICES: [],
    JOB_START_TIMEOUT_SECONDS: 0,
}
