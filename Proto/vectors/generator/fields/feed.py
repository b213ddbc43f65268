"""The fields of the feed, its consumers, and timers."""

from .notation import byte, many, number, string, time
from .values import T0


def partition(index, partitions):
    return [number("index", index), number("partitions", partitions)]


def indexes(name, *values):
    return many(name, [[number("index", value)] for value in values])


def types(*values):
    return many("channel_types", [[string("type", value)] for value in values])


def consumer(name, kinds=0, channel_types=(), since=0, position=1, position_time=T0, committed_at=T0, index=0,
             partitions=1, epoch=0):
    """A consumer with its name."""
    return [
        string("consumer", name), number("kinds", kinds), types(*channel_types), time("since", since),
        number("number", position), time("position_time", position_time), time("committed_at", committed_at),
        *partition(index, partitions), number("epoch", epoch)]


def of_consumer(name, counter, *rest):
    return [string("consumer", name), number("counter", counter), *rest]


def record(kind, record_number, when, cid="", user="", message_id="", sequence=0, thread="", first=0, second=0, text="",
           detail="", users=()):
    fields = [
        byte("kind", kind), number("number", record_number), time("at", when), string("cid", cid), string("user", user),
        string("message", message_id), number("sequence", sequence), string("thread", thread), number("first", first),
        number("second", second), string("text", text), string("detail", detail)]
    return fields + ([many("users", [[string("user", user)] for user in users])] if kind == 19 else [])


def timer(channel_number, thread, sequence, due, after, purpose, limit=None):
    fields = [
        number("channel", channel_number), number("thread", thread), number("sequence", sequence), time("due", due),
        number("after", after), byte("purpose", purpose)]
    return fields + ([] if limit is None else [number("limit", limit)])


def feed_page(number_, end, through, *records, gap_to=0):
    return [
        number("number", number_), number("end", end), time("through", through), time("gap_to", gap_to),
        many("records", records)]


def commit(name, counter, index, partitions, flags, number_=0, when=0, epoch=0, state=""):
    return of_consumer(
        name, counter, *partition(index, partitions), number("flags", flags), number("number", number_),
        time("position_time", when), number("epoch", epoch), string("state", state))


def lease(name, counter, worker, partitions, milliseconds, *held):
    return of_consumer(
        name, counter, string("worker", worker), number("partitions", partitions), number("milliseconds", milliseconds),
        indexes("held", *held))
