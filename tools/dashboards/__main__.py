"""The program."""

import argparse
import json
import sys
from pathlib import Path

from tools.dashboards.boards import BOARDS
from tools.dashboards.grafana import document

FOLDER = Path(__file__).resolve().parents[2] / "helm" / "braidmq" / "dashboards"


def main() -> None:
    """Exits with 1 if a file differs and is only to be checked."""
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards", description="Generate the chart's dashboards.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    check = parser.parse_args().check
    made = {FOLDER / f"{board.name}.json": json.dumps(document(board), indent=1) + "\n" for board in BOARDS}
    if not check:
        for path, text in made.items():
            path.write_text(text)
    elif made != {path: path.read_text() for path in FOLDER.glob("*.json")}:
        sys.exit("the dashboards are not what the program makes: python -m tools.dashboards")


if __name__ == "__main__":
    main()
