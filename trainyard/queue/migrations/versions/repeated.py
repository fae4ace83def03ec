"""The entries that make jobs at each time of an expression of cron."""

import sqlalchemy as sa
from alembic import op

revision = "repeated"
down_revision = "third"


def upgrade() -> None:
    """Make their columns."""
    op.add_column("jobs", sa.Column("every", sa.String(255)))
    op.add_column("jobs", sa.Column("due", sa.Double))
