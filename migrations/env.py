"""alembic's entry point: runs the migrations on the connection of pinner.store.database.schema, in its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
