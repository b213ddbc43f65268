"""Frames of threads, and of a user's own receipts and threads."""

from ..fields.channels import request, row
from ..fields.notation import byte, many, number, opt, string, time
from ..fields.push import delivery
from ..fields.values import CID, T0
from ..framing import frame

THREAD_FRAMES = [
    # Threads: the parent message stands behind the fields, before the second of the token.
    frame("register_message", request(
        CID, 30, string("message", "m-7"), string("user", "bob"), time("created", T0), number("flags", 0)),
        correlation=27, thread="m-1", name="register_message: a reply"),
    frame("mark_read", request(CID, 31, string("user", "alice"), string("message", ""), opt("unread_epoch", None)),
          shard=11, correlation=27, thread="m-1", name="mark_read: a whole thread"),
    frame("mark_read", request(CID, 31, string("user", "alice"), string("message", "m-7"), opt("unread_epoch", 3)),
          shard=11, correlation=27, thread="m-1", issued=1_700_000_000, name="mark_read: a thread, for a token"),
    frame("mark_unread", request(CID, 32, string("user", "alice"), string("message", "m-7"), opt("unread_epoch", None)),
          flags=1, correlation=27, thread="p" * 128, name="mark_unread: a thread, a resend, the longest id"),
    frame("mark_delivered", request(CID, 33, string("user", "alice"), string("message", "")), flags=1, correlation=27,
          thread="m-1", issued=0, name="mark_delivered: a thread, a resend, for a token that says no time"),

    # Positions in a thread that count nowhere.
    frame("mark_read_reply", row("bob", (T0, "r-1", 1), (T0, "r-1", 1), (0, "", 0)) + [byte("uncounted", 3)],
          correlation=27, name="mark_read_reply: it counts for no reply"),
    frame("mark_delivered_reply", row("bob", own=(0, "", 0)) + [byte("uncounted", 1)], correlation=27,
          name="mark_delivered_reply: not in the thread"),
    frame("mark_unread_reply", row("bob", own=(0, "", 0)) + [byte("uncounted", 2)], correlation=27,
          name="mark_unread_reply: no replies"),
    frame("acknowledge_push_reply", delivery(2, T0, 0), correlation=30,
          name="acknowledge_push_reply: not in the thread"),
    frame("acknowledge_push_reply", delivery(5, T0, T0 + 750), correlation=30,
          name="acknowledge_push_reply: moved, and registered before"),
    frame("thread_read_state", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"), string("parent", "m-1"), number("limit", 100),
        string("cursor", "")), shard=11, correlation=36),
    frame("thread_read_state", request(
        CID, None, number("viewer_flags", 1), string("viewer", ""), string("parent", "p" * 128), number("limit", 1),
        string("cursor", "k1767225600000-bob")), correlation=36, issued=1_700_000_000,
        name="thread_read_state: a further page, for a token"),
    frame("thread_read_state_reply", [many("rows", [row("alice", (T0, "r-2", 2), (T0, "r-2", 2), (0, "", 0)),
                                                    row("bob", (T0, "r-1", 1))]),
                                      string("next_cursor", "k1767225600000-bob")], correlation=36),
    frame("thread_read_state_reply", [many("rows", []), string("next_cursor", "")], correlation=36,
          name="thread_read_state_reply: no replies"),

    # A user's own receipts and threads in a channel.
    frame("user_receipts", request(CID, None, string("user", "alice"), byte("state", 0), number("limit", 100),
                                   opt("cursor", None)), shard=11, correlation=37),
    frame("user_receipts", request(CID, None, string("user", "alice"), byte("state", 1), number("limit", 1),
                                   opt("cursor", 2**32 - 1)), correlation=37, issued=1,
          name="user_receipts: acknowledged ones, below a message, for a token"),
    frame("user_receipts_reply", [many("receipts", [
        [number("sequence", 42), string("message", "m-42"), string("sender", "bob"), time("created", T0),
         byte("receipt_status", 1), time("expires", T0 + 1000), time("acknowledged", 0), byte("exact", 1),
         string("note", "")],
        [number("sequence", 40), string("message", "m-40"), string("sender", ""), time("created", T0),
         byte("receipt_status", 2), time("expires", 0), time("acknowledged", T0 + 5), byte("exact", 0),
         string("note", "on it ✓")]]), opt("next_cursor", 40)], correlation=37),
    frame("user_receipts_reply", [many("receipts", []), opt("next_cursor", None)], correlation=37,
          name="user_receipts_reply: none"),
    frame("user_threads", request(CID, None, string("user", "alice"), byte("threads", 1), number("limit", 100),
                                  opt("cursor", None)), shard=11, correlation=38),
    frame("user_threads_reply", [many("threads", [
        [number("parent_sequence", 42), string("parent", "m-42"), number("unread_messages", 2),
         string("last_read_message", "r-1"), string("first_unread_message", "r-2"), string("newest_message", "r-3")],
        [number("parent_sequence", 7), string("parent", "m-7"), number("unread_messages", 0),
         string("last_read_message", ""), string("first_unread_message", ""), string("newest_message", "x-1")]]),
        opt("next_cursor", 7)], correlation=38),
    frame("user_threads_reply", [many("threads", []), opt("next_cursor", None)], correlation=38,
          name="user_threads_reply: none"),
]
