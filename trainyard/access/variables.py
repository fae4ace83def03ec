"""Environment variables by which the Ray nodes tell a job about their stack.

training/ names them itself: it is uploaded with each job, without this package.
"""

STORAGE_URL = "TRAINYARD_STORAGE_URL"  # s3://<bucket> or file:///<folder>
DASHBOARD = "TRAINYARD_DASHBOARD"  # host:port of Ray's dashboard
SERVE_HOST = "TRAINYARD_SERVE_HOST"  # address that models are served at
SERVE_PORT = "TRAINYARD_SERVE_PORT"
SERVE_TOKEN_FILE = "TRAINYARD_SERVE_TOKEN_FILE"  # noqa: S105 - a name
TRACKING_CREDENTIALS_FILE = "TRAINYARD_TRACKING_CREDENTIALS_FILE"  # user and password of MLflow
FOOD11_FOLDER = "FOOD11_DATA_DIR"
