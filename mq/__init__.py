"""The broker: it accepts, stores and serves messages, and leads its cluster while it is elected.

Begin with `broker`, which puts a broker together; `drain` is how it leaves its cluster. A request comes in through
`http`, which finds the running topic in `topic`. `transitions` changes which segments a topic has, and `maintenance`
keeps their files in shape. `base` is the bottom layer, and `limits` bounds what requests take. `process` runs a broker
as a process, `local` a whole cluster on one machine, and `cli` is the command line. The import contracts in
pyproject.toml name the layers in order.
"""
