"""Alembic's entry: runs on the connection that worker.schema hands over, in one transaction a revision."""

from alembic import context

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit(
        "Run migrations with ./nightshift migrate: it takes the lock and checks the schema's version first."
    )

context.configure(connection=connection, transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
