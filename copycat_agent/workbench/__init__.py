"""The machinery of the commands for working on definitions: `new`, `try`, `test`, `fmt`, `import`, `explain` and `doctor`.

Nothing here knows the terminal, and nothing here runs in an agent.
"""
