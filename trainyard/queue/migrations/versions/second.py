"""The machines of the ledger, and since when jobs are asked to make room."""

import sqlalchemy as sa
from alembic import op

revision = "second"
down_revision = "first"


def upgrade() -> None:
    """Make them."""
    op.add_column("jobs", sa.Column("yields", sa.Double))
    op.create_table(
        "machines",
        sa.Column("node", sa.String(64), primary_key=True),
        sa.Column("group", sa.String(255), nullable=False),
        sa.Column("price", sa.Double, nullable=False),
        sa.Column("share", sa.Double, nullable=False),
        sa.Column("began", sa.Double, nullable=False),
        sa.Column("seen", sa.Double, nullable=False),
    )
