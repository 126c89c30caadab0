"""alembic's entry: runs the migrations on the connection that pinner.store.schema hands over, in its transaction."""

from alembic import context

from pinner.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
