"""Train, choose the thresholds, write the parameters the judge ships with."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from importlib.resources import files
from pathlib import Path

from gnl_fixtures import load_shipped
from gnl_qualify.train.rows import build_table, sources
from gnl_qualify.train.validate import train
from gnl_semantic.embedder.load import load_embedder


def main() -> None:
    """Write `parameters.json` beside the judge, and the figures of the cross-validation to standard output."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    fixtures = load_shipped("calibration")
    embedder = load_embedder()
    table = asyncio.run(build_table(sources(fixtures), embedder))
    data, figures = train(table, trained_on=fixtures.set_id, embedder=embedder.model_id)
    target = Path(str(files("gnl_semantic.judge.local") / "parameters.json"))
    target.write_bytes(data)
    json.dump(figures, sys.stdout, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
