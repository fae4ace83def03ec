"""Alembic runs this: the changes of the tables, in the caller's transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
