"""The extras of the distribution, and what a command says that needs one of them."""

from trainyard.client.errors import ClientError

DISTRIBUTION = "trainyard-ray"
# The modules of each extra (requirements/NAME.in). The client alone has none of them.
MODULES = {
    "jobs": (
        *("PIL", "cloudpickle", "filelock", "hydra", "lightning", "matplotlib", "numpy"),
        *("omegaconf", "pyarrow", "ray", "sklearn", "torch", "torchvision", "transformers"),
    ),
    "stack": (
        *("Crypto", "dill", "google", "httpx", "lightkube", "minio", "pulumi", "pulumi_command"),
        *("pulumi_docker", "ruamel", "supervisor"),
    ),
    "mlflow": ("mlflow", "alembic", "cronsim", "sqlalchemy"),
    "ui": ("starlette", "uvicorn"),
}


def explained(error: ModuleNotFoundError) -> ClientError | None:
    """Return what to install for a module that is missing; None if no extra has it."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in MODULES.items():
        if module in modules:
            return ClientError(
                f"this needs {module}, which the client alone lacks: run "
                f"`pip install '{DISTRIBUTION}[{extra}]'`, or use the .venv of a checkout"
            )
    return None
