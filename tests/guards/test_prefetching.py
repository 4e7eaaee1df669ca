"""The threads that prepare batches, as a run ends."""

import pytest
from endless_batches import Batches
from fairseq.data.iterators import BackgroundConsumer, BufferedIterator

from user_dir.guards.prefetching import end_prefetching


@pytest.mark.parametrize("room", [2, 1_000_000], ids=["waiting", "at work"])
def test_batches_are_prepared_no_longer_than_the_run_lasts(room):
    batches = BufferedIterator(room, Batches())
    next(batches)
    assert batches._consumer.is_alive() and isinstance(batches._consumer, BackgroundConsumer)
    end_prefetching()
    assert not batches._consumer.is_alive()
