"""A whole cluster on this machine, of real processes: ZooKeeper, an object store, brokers."""
