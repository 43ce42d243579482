"""Commands that run and administer brokers: `mq serve`, `mq local` and `mq cluster`.

`serve` makes one option of each setting of a broker and starts it; `start_message` is what it then prints. `local` runs
a whole cluster of processes with `mq.local`. `cluster` shows the brokers of a running cluster and drains them.
"""
