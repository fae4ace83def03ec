"""Names of the stack's outputs: the whole contract between infra/ and training/.

training/ may not import this module, so training/client/outputs.py lists the same names;
tests/unit/test_house.py holds the two lists against each other.
"""

PROJECT = "project"  # this Pulumi project's name
STACK = "stack"  # the stack's name: a client that was given another stack's outputs notices
DASHBOARD_URL = "dashboardUrl"  # http://host:port of the Ray dashboard and job server
RAY_TOKEN = "rayToken"  # secret: bearer token of every Ray endpoint  # noqa: S105
STORAGE_URL = "storageUrl"  # s3://<bucket>, or file:///<folder> when no object store runs
OBJECT_STORE_ENDPOINT = "objectStoreEndpoint"  # http://host:port of the S3 API, "" without one
BUCKET = "bucket"  # "" without an object store
ACCESS_KEY = "accessKey"  # secret: of the user that may touch only that bucket, "" without one
SECRET_KEY = "secretKey"  # secret, "" without an object store  # noqa: S105
PROMETHEUS_URL = "prometheusUrl"  # "" when monitoring is off
PROMETHEUS_PASSWORD = "prometheusPassword"  # secret, of user trainyard; "" without a gateway  # noqa: S105
GRAFANA_URL = "grafanaUrl"  # "" where no Grafana runs
GRAFANA_PASSWORD = "grafanaPassword"  # secret, of user admin; "" without a Grafana  # noqa: S105
NOTEBOOK_URL = "notebookUrl"  # secret: holds the notebook's token; "" without a notebook
TRACKING_URL = "trackingUrl"  # "" where no MLflow runs
TRACKING_PASSWORD = "trackingPassword"  # secret, of user admin; "" without an MLflow  # noqa: S105
SERVE_URL = "serveUrl"  # of Ray Serve's proxy; nothing answers there before something is served
SERVE_TOKEN = "serveToken"  # secret: bearer token of every served model  # noqa: S105
RAY_VERSION = "rayVersion"
PYTHON_VERSION = "pythonVersion"  # major.minor of the nodes' Python
NODES = "nodes"  # list of {name, cpus, gpus, memoryMib, objectStoreMib, resources}
# {} where the services run on this machine; else secret: {host, port, user, hostKey, keyFile,
# privateKey} of the machine that all addresses above are meant on.
SSH = "ssh"
EXPIRES_AT = "expiresAt"  # ISO 8601, UTC: when the machines end themselves; "" without a ttl
RAY_CLUSTER_FILE = "rayClusterFile"  # secret: for `ray up`; "" where the cluster is this machine's
