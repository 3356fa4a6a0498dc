"""The web process: reads, enqueues, renders. It can not run a job by accident."""
