"""The users with tokens of their own, and whose each run is: of the first job that named it."""

import sqlalchemy as sa
from alembic import op

revision = "third"
down_revision = "second"


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "users",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("seen", sa.Double),
    )
    runs = op.create_table(
        "runs",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("user", sa.String(255), nullable=False),
    )
    jobs = sa.table("jobs", *map(sa.column, ("number", "run", "user")))
    first = sa.select(sa.func.min(jobs.c.number)).where(jobs.c.run != "").group_by(jobs.c.run)
    known = sa.select(jobs.c.run, jobs.c.user).where(jobs.c.number.in_(first))
    op.execute(sa.insert(runs).from_select(["name", "user"], known))
