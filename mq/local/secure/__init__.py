"""What `mq local --secure` needs that is secret: made once, kept in a folder beside the store, renewed before it ends.

Begin with `secure_folder`, which has the files and knows which of them are good. `authority` makes and reads
certificates, without any I/O.
"""
