"""A whole cluster on this machine, made of real processes: ZooKeeper, an object store, brokers.

Begin with `cluster`, which lists the processes, and in which order they start and end. `child` is one process,
`zookeeper` the ensemble, and `s3_server` an S3 server in memory. `mq local` and the cluster tests use it.
"""
