"""The implementation of the commands for working on definitions: `new`, `try`, `test`, `fmt`, `import`, `explain` and `doctor`.

Nothing here depends on the terminal, or runs in an agent.
"""
