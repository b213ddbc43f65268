"""Frames of the feed and its consumers."""

from ..fields.feed import commit, consumer, feed_page, indexes, lease, of_consumer, partition, record, types
from ..fields.notation import byte, many, number, string, time
from ..fields.values import CID, T0
from ..framing import frame

FEED_FRAMES = [
    # The feed and its consumers.
    frame("list_consumers", [string("consumer", "")], shard=3, correlation=50),
    frame("list_consumers", [string("consumer", "search-index")], shard=3, correlation=50,
          name="list_consumers: one of them"),
    frame("list_consumers_reply", [number("retention", 0), number("end", 1), many("consumers", [])], correlation=50),
    frame("list_consumers_reply", [number("retention", 86_400_000), number("end", 300), many("consumers", [
        consumer("audit") + [many("states", [])],
        consumer("search-index", 5, ("messaging", "team"), T0, 128, T0 + 1, T0 + 2, 3, 4, T0 + 3) + [many("states", [
            [*partition(3, 4), string("state", "offset 7 \u2713")], [*partition(1023, 1024), string("state", "")]])],
        consumer("c" * 64, 2**32 - 1, ("t" * 64,), 2**63 - 1, 2**64 - 1, 2**63 - 1, 2**63 - 1, 2**16 - 1, 2**16 - 1,
                 2**64 - 1) + [many("states", [])]])], correlation=50, name="list_consumers_reply: three of them"),
    frame("read_feed", [
        string("consumer", "search-index"), *partition(3, 4), number("epoch", T0), number("number", 128),
        number("flags", 0), number("limit", 2_000)], shard=3, correlation=51),
    frame("read_feed", [
        string("consumer", "c" * 64), *partition(2**16 - 1, 2**16 - 1), number("epoch", 2**64 - 1),
        number("number", 2**64 - 1), number("flags", 2**64 - 1), number("limit", 2**32 - 1)], shard=3, correlation=51,
          name="read_feed: the largest numbers"),
    frame("read_feed", [
        string("consumer", "audit"), *partition(0, 1), number("epoch", 0), number("number", 1), number("flags", 1),
        number("limit", 10_000)], shard=3, correlation=51, name="read_feed: without a lease, at once"),
    frame("read_feed_reply", feed_page(128, 128, T0), correlation=51),
    frame("read_feed_reply", feed_page(1, 2**64 - 1, 2**63 - 1, gap_to=2**63 - 1), correlation=51,
          name="read_feed_reply: nothing but a gap"),
    frame("read_feed_reply", feed_page(
        150, 300, T0 + 10,
        record(0, 128, T0, CID, "alice", "m-42", 42, first=3),
        record(0, 129, T0, CID, "bob", "m-43", 1, "m-42"),
        record(1, 130, T0 + 1, CID, "alice", "m-42", 42),
        record(2, 131, T0 + 2, CID, "bob", "m-41", 41),
        record(3, 132, T0 + 3, CID, "bob", "m-41", 41, first=T0 - 60_000, text="apns", detail="phone"),
        record(4, 133, T0 + 4, CID, "carol", "", 0, first=2**32 - 1, second=1),
        record(5, 134, T0 + 4, CID, "carol", "m-40", 40),
        record(6, 135, T0 + 4, CID, "alice", "m-40", 40),
        record(7, 136, T0 + 5, CID, "", "m-39", 39),
        record(8, 137, T0 + 5, CID, "alice", "m-41", 41, first=40, second=2),
        record(9, 138, T0 + 5, CID, "dave"),
        record(10, 139, T0 + 6, CID),
        record(11, 140, T0 + 6, "team:red"),
        record(12, 141, T0 + 6, "team:red"),
        record(13, 142, T0 + 6, "t" * 64 + ":" + "c" * 255),
        record(14, 143, T0 + 7, CID, sequence=2**32 - 1),
        record(15, 144, T0 + 7, CID, "bob", first=41, second=2**64 - 1, text="m-41", detail="m" * 255),
        record(16, 145, T0 + 8, user="bob", first=2),
        record(17, 146, T0 + 9, user="\u00eb" * 127),
        record(18, 147, T0 + 10, first=T0 - 3_600_000),
        record(19, 148, T0 + 10, CID, "", "m-42", 42, first=2**32 + 1, second=1, users=("bob", "carol")),
        record(19, 149, T0 + 10, CID, "", "m-43", 1, "m-42", first=10 * 2**32 + 10, second=6, users=())),
        correlation=51, name="read_feed_reply: records of every type"),
    frame("put_consumer", of_consumer("audit", 50, number("kinds", 0), types(), byte("start", 0), time("since", 0)),
          shard=3, correlation=52),
    frame("put_consumer", of_consumer(
        "search-index", 51, number("kinds", 5), types("messaging", "team"), byte("start", 2), time("since", T0)),
          flags=1, shard=3, correlation=52, name="put_consumer: filters, since a time, a resend"),
    frame("put_consumer", of_consumer(
        "c" * 64, 2**64 - 1, number("kinds", 2**32 - 1), types("t" * 64), byte("start", 1), time("since", 2**63 - 1)),
          shard=3, correlation=52, name="put_consumer: the largest numbers"),
    frame("put_consumer_reply", [byte("created", 1)], correlation=52),
    frame("put_consumer_reply", [byte("created", 0)], correlation=52, name="put_consumer_reply: it existed"),
    frame("remove_consumer", of_consumer("audit", 52), shard=3, correlation=53),
    frame("remove_consumer_reply", [], correlation=53),
    frame("open_partition", of_consumer("search-index", 53, *partition(3, 4), number("epoch", T0)), shard=3,
          correlation=54),
    frame("open_partition", of_consumer(
        "search-index", 54, *partition(2**16 - 1, 2**16 - 1), number("epoch", 2**64 - 1)), shard=3, correlation=54,
          name="open_partition: the largest numbers"),
    frame("open_partition_reply", [number("number", 1), time("position_time", T0), string("state", "")],
          correlation=54),
    frame("open_partition_reply", [
        number("number", 2**64 - 1), time("position_time", 2**63 - 1), string("state", "s" * 16_384)], correlation=54,
          name="open_partition_reply: the longest state, the largest numbers"),
    frame("commit_consumer", commit("search-index", 55, 3, 4, 7, 128, T0 + 1, T0, "offset 7 \u2713"), shard=3,
          correlation=55),
    frame("commit_consumer", commit("search-index", 56, 3, 4, 1, 2**64 - 1, 2**63 - 1), shard=7, correlation=55,
          name="commit_consumer: a position alone"),
    frame("commit_consumer", commit("search-index", 57, 3, 4, 2), shard=3, correlation=55,
          name="commit_consumer: no state any more"),
    frame("commit_consumer", commit("search-index", 58, 0, 1, 6, 0, 0, 2**64 - 1, "s" * 16_384), shard=0,
          correlation=55, name="commit_consumer: the longest state, for an epoch"),
    frame("commit_consumer_reply", [], correlation=55),
    frame("lease_partitions", lease("search-index", 59, "worker-1", 4, 8_000, 0, 3), shard=5, correlation=56),
    frame("lease_partitions", lease("search-index", 60, "w" * 64, 2**16 - 1, 2**32 - 1, 2**16 - 1), shard=5,
          correlation=56, name="lease_partitions: the largest numbers"),
    frame("lease_partitions", lease("search-index", 61, "worker-1", 4, 0), shard=5, correlation=56,
          name="lease_partitions: the worker leaves"),
    frame("lease_partitions_reply", [number("workers", 2), indexes("granted", 0, 3)], correlation=56),
    frame("lease_partitions_reply", [number("workers", 0), indexes("granted")], correlation=56,
          name="lease_partitions_reply: nothing"),
    frame("lease_partitions_reply", [number("workers", 256), indexes("granted", 300, 2**16 - 1)], correlation=56,
          name="lease_partitions_reply: large numbers"),
]
