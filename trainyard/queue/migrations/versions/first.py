"""The first tables. They are written out: a later change of the models does not change this one."""

import sqlalchemy as sa
from alembic import op

revision = "first"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "jobs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(128), nullable=False, unique=True),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("run", sa.String(255), nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("packages", sa.Text, nullable=False),
        sa.Column("bundles", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float(53)),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("stop", sa.Boolean, nullable=False),
        sa.Column("queued", sa.Float(53), nullable=False),
        sa.Column("started", sa.Float(53)),
        sa.Column("ended", sa.Float(53)),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("end", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("jobs_by_state", "jobs", ["state", "number"])
    op.create_table(
        "attempts",
        sa.Column(
            "job", sa.String(128), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("share", sa.Float(53), nullable=False),
        sa.Column("gpus", sa.Float(53), nullable=False),
        sa.Column("began", sa.Float(53), nullable=False),
        sa.Column("ended", sa.Float(53)),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("until", sa.Float(53), nullable=False),
    )
    op.create_table(
        "facts",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
