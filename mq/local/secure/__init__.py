"""The secrets of `mq local --secure`: created once, kept in a folder beside the store, renewed before they end.

Begin with `secure_folder`, which has the files and knows which of them are good. `authority` makes and reads
certificates, without any I/O.
"""
