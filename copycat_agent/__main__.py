"""`python -m copycat_agent` is `copycat`."""

from copycat_agent.cli.main import main

main()
