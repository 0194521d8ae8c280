"""The Spark jobs: one file for each, with its arguments and its `main`.

`jobs/` of the repository has a script of the same name for ``spark-submit``. `spark-log
produce`, `consume`, `transform`, `replay` and `reprocess` submit the files of this folder.

- `group/`: a job as the member of a consumer group, and its processing of a batch of records.
- `sink/`: destinations of records, and the Delta table that has each record once.
- `task/`: what one Spark task does to one partition: clean, replicate, mirror.
- `program/`: options, session, progress bar and report, which all programs share.
- `reprocessing`: the steps of `reprocess`, and the progress that survives a killed job.
"""
