"""The first tables. They are written out: a later change of the models does not change this one."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "first"
down_revision = None

TEXT, WHOLE, SECONDS = sa.Text, sa.Integer, sa.Double
COLUMNS: dict[str, dict[str, Any]] = {
    "jobs": {"user": sa.String(255), "run": sa.String(255), "request": TEXT, "packages": TEXT}
    | {"bundles": TEXT, "priority": WHOLE, "after": TEXT, "seconds?": SECONDS, "retries": WHOLE}
    | {"attempt": WHOLE, "state": sa.String(16), "stop": sa.Boolean, "queued": SECONDS}
    | {"started?": SECONDS, "ended?": SECONDS, "reason": TEXT, "end": TEXT},
    "attempts": {"user": sa.String(255), "share": SECONDS, "gpus": SECONDS, "began": SECONDS}
    | {"ended?": SECONDS},
    "lease": {"holder": sa.String(64), "until": SECONDS},
    "facts": {"value": TEXT},
}


def upgrade() -> None:
    """Make them."""
    of_job = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    keys: dict[str, list[sa.Column[Any]]] = {
        "jobs": [
            sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
            sa.Column("id", sa.String(128), nullable=False, unique=True),
        ],
        "attempts": [
            sa.Column("job", sa.String(128), of_job, primary_key=True),
            sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        ],
    }
    for table, columns in COLUMNS.items():
        others: list[sa.Column[Any]] = [
            sa.Column(name.rstrip("?"), kind, nullable=name.endswith("?"))
            for name, kind in columns.items()
        ]
        own = keys.get(table) or [sa.Column("name", sa.String(16), primary_key=True)]
        op.create_table(table, *own, *others)
    op.create_index("jobs_by_state", "jobs", ["state", "number"])
