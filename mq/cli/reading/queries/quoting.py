"""Names and texts in SQL."""


def sql_text(text: str) -> str:
    """A text literal."""
    return "'{}'".format(text.replace("'", "''"))


def sql_name(name: str) -> str:
    """A name in double quotes."""
    return '"{}"'.format(name.replace('"', '""'))
