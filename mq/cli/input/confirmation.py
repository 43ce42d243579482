"""Ask before an action that cannot be undone."""

from typing import Annotated

import typer

from mq.cli.failures import CommandFailed

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless `--yes` has answered.

    Raises `typer.Abort` if the answer is no, and `CommandFailed` if stdin gives no answer.
    """
    if yes:
        return
    try:
        agrees = typer.confirm(question, err=True)
    except (typer.Abort, OSError) as error:
        # The line of the question ends here.
        typer.echo(err=True)
        raise CommandFailed("stdin gives no answer, so nothing was done: --yes does it without asking") from error
    if not agrees:
        raise typer.Abort
