"""`mq token`: make and inspect tokens, and the keys that sign them. Only `revoke` asks a broker.

`signing` has the commands about keys, `token` those about tokens.
"""
