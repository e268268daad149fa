"""Batches made where agents and workflows are named, under the options that hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from gnl_core.batch.batch import Batch, make_batch
from gnl_core.batch.items import ItemKey
from gnl_core.batch.rules import BatchOptions
from gnl_core.journal.port import Journal
from gnl_core.tools import Tool


class BatchHost:
    """What `Gnl` is to batches: a journal, and options that a batch's own win over."""

    journal: Journal
    _base: Mapping[str, Any]

    def create_batch(self, *, tool: Tool, item_key: ItemKey, **options: Unpack[BatchOptions]) -> Batch:
        """Return a batch over this journal, under the preset and the options given to all.

        Args:
            tool: As for `create_batch`.
            item_key: As for `create_batch`.
            **options: As for `create_batch`; limits are merged field by field.

        Raises:
            GnlError: As `create_batch`.
        """
        return make_batch(journal=self.journal, tool=tool, item_key=item_key, base=self._base, given=options)
