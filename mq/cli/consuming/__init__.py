"""Commands about consumer groups: `mq group`, `mq work` and `mq dead-letters`.

`work` lets a worker of the client run `message_command` for each message.
"""
