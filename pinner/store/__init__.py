"""The central database and the agent's journal. repositories has the repositories of the database. journal/ has the
agent's record of every change."""
