"""The program `gnl`: what stands in a journal, and a person's answers to it."""

from gnl_core.cli.app import main

__all__ = ["main"]
