"""Ask before something is done that cannot be taken back."""

import typer

from mq.cli.failures import CommandFailed


def confirm(question: str) -> None:
    """Raises `typer.Abort` if the answer is no, and `CommandFailed` if there is nobody to answer."""
    try:
        agrees = typer.confirm(question, err=True)
    except (typer.Abort, OSError) as error:
        # The line of the question ends here.
        typer.echo(err=True)
        raise CommandFailed("stdin gives no answer, so nothing was done: --yes does it without asking") from error
    if not agrees:
        raise typer.Abort
