"""Commands that examine and measure: `mq doctor`, `mq verify` and `mq bench`.

`doctor` prints the findings of `checks` about this machine, a broker and a store, and those of `peer_port` about the
port where brokers call each other. `bench` publishes to a running broker and reads back; `bench_run` takes the
measurements. `verify` reads topics on their store through `filer/verification`.
"""
