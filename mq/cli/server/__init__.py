"""Commands that run and administer brokers: `mq serve`, `mq config`, `mq healthcheck`, `mq local` and `mq cluster`.

`serve` starts a broker, `config` shows what its settings would be, and `healthcheck` asks whether it is alive; all
three have one option for each setting (`settings_options`). `start_message` is the message that a broker then prints.
`local` runs a whole cluster of processes with `mq.local`. `cluster` shows the brokers of a running cluster and drains
them.
"""
