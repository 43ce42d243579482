"""Commands that examine and measure: `mq doctor` and `mq bench`.

`doctor` prints the findings that `checks` makes of this machine, a broker and a store. `bench` publishes to a running
broker and reads back; `bench_run` takes the measurements.
"""
