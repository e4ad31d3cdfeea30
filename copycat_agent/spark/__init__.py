"""Runs batches on Spark: a private local session or one on a cluster, and the executors that use it. Only this package uses py4j.

How `agent.executor_choice` wires it::

    host = SparkHost(agent.spark, state_dir / "run", on_failure=exit_75)   # spark.host
    host.start()                      # returns at once: the JVM starts while the caller loads definitions
    executor = on_this_host(host)     # spark.jobs, for `run`;  JobExecutor(host) for `backfill`
    ...
    executor.close()
    host.close()

This file imports nothing, because Spark's Python daemon imports the package before it forks the workers.
"""
