"""Frames of the index of users' channels, unread counts and flags, and the rebuild of the index."""

from ..fields.channels import channel_entry, list_channels_of, rebuild, request, row, unread, unread_of
from ..fields.notation import byte, many, number, opt, string, time
from ..fields.values import CID, T0
from ..framing import frame

INDEX_FRAMES = [
    # The index of users' channels, and unread counts.
    frame("list_channels", list_channels_of("alice", 0, 100, None), shard=3, correlation=29),
    frame("list_channels", list_channels_of("a" * 128, 1, 1000, 2**32 - 1), correlation=29,
          name="list_channels: also ended ones, the most, the last place, the longest id"),
    frame("list_channels", list_channels_of("alice", 0, 1, 0), correlation=29, issued=1_700_000_000,
          name="list_channels: from the first place on, for a token"),
    frame("list_channels", list_channels_of("alice", 2, 1000, None, T0), shard=3, correlation=29,
          name="list_channels: also deleted ones"),
    frame("list_channels", list_channels_of("alice", 3, 1000, 256, 2**63 - 1), shard=3, correlation=29,
          issued=1_700_000_000, name="list_channels: also ended and deleted ones, for a token"),
    frame("list_channels_reply", [
        many("entries", [
            channel_entry(CID, 0, 1, T0), channel_entry("t" * 64 + ":" + "c" * 128, 16777215, 0, 2**63 - 1),
            channel_entry("team:red", None, 0, 0)]),
        opt("next_cursor", 256)], shard=3, correlation=29),
    frame("list_channels_reply", [many("entries", []), opt("next_cursor", None)], correlation=29,
          name="list_channels_reply: no channel"),
    frame("list_channels_reply", [
        many("entries", [
            channel_entry(CID, 0, 3, T0, T0), channel_entry("team:red", None, 2, 0, 2**63 - 1)]),
        opt("next_cursor", None)], shard=3, correlation=29,
          name="list_channels_reply: one that was made anew, and one that was deleted"),
    frame("unread_counts", unread_of((CID, "alice", 0)), shard=11, correlation=30),
    frame("unread_counts", unread_of(
        (CID, "alice", 16777215), ("team:red", "bob", 300), ("t" * 64 + ":" + "c" * 128, "a" * 128, 0)),
        correlation=30, name="unread_counts: several"),
    frame("unread_counts_reply", [many("counts", [unread(3, 1)])], shard=11, correlation=30),
    frame("unread_counts_reply", [many("counts", [unread(0, 0, 1), unread(5, 2, 2), unread(1, 0, 3, 1)])],
          correlation=30, name="unread_counts_reply: flagged, muted, and both"),
    frame("mark_unread_since", request(CID, 47, string("user", "alice"), time("since", T0), opt("unread_epoch", 3)),
          shard=11, correlation=47),
    frame("mark_unread_since", request(CID, 48, string("user", "alice"), time("since", 1), opt("unread_epoch", None)),
          correlation=47, thread="m-1", name="mark_unread_since: in a thread"),
    frame("mark_unread_since_reply", row("alice", (T0, "m-1", 1), own=(2, "m-2", 4), flags=3), shard=11,
          correlation=47),
    frame("set_member", request(CID, 45, string("user", "alice"), string("role", ""), number("flags", 3)), shard=11,
          correlation=46),
    frame("set_member", request(CID, 46, string("user", "bob"), string("role", "moderator"), number("flags", 4)),
          correlation=46, name="set_member: a role, joining"),
    frame("set_member_reply", [byte("joined", 0), string("role", ""), time("joined_at", T0), byte("muted", 1)],
          shard=11, correlation=46),
    frame("set_member_reply", [byte("joined", 1), string("role", "moderator"), time("joined_at", T0), byte("muted", 0)],
          correlation=46, name="set_member_reply: joined"),
    frame("mark_unread", request(CID, 7, string("user", "alice"), string("message", ""), opt("unread_epoch", None)),
          correlation=6, name="mark_unread: the whole channel"),
    frame("mark_unread_reply", row("alice", (T0, "m-9", 9), own=(0, "", 4), flags=7), correlation=6,
          name="mark_unread_reply: flagged as a whole"),
    frame("mark_read_reply", row("alice", (T0, "m-9", 9), own=(9, "m-10", 4), flags=3, mentions=2), correlation=5,
          name="mark_read_reply: the own row"),
    frame("mark_read_reply",
          row("alice", (T0, "m-9", 9), (T0 - 5, "m-11", 11), own=(9, "m-10", 4), flags=3, mentions=2),
          correlation=5, name="mark_read_reply: three messages"),
    frame("unread_counts_reply", [many("counts", [
        unread(0, 0), [number("found", 31)], [number("found", 32)], [number("found", 22)],
        unread(2**32 - 1, 65536)])], correlation=30, name="unread_counts_reply: what is known of each"),
    frame("rebuild_index", [byte("phase", 0), number("epoch", 0)], shard=2, correlation=31),
    frame("rebuild_index", [byte("phase", 1), number("epoch", 1)], shard=2, correlation=31,
          name="rebuild_index: send again"),
    frame("rebuild_index", [byte("phase", 2), number("epoch", 2**64 - 1)], shard=2, correlation=31,
          name="rebuild_index: sweep, the last epoch"),
    frame("rebuild_index_reply", rebuild(0, 0), shard=2, correlation=31),
    frame("rebuild_index_reply", rebuild(1, 1, 127, 128, 300), shard=2, correlation=31,
          name="rebuild_index_reply: sending again"),
    frame("rebuild_index_reply", rebuild(2, *[2**64 - 1] * 4), shard=2, correlation=31,
          name="rebuild_index_reply: sweeping, everything at its largest"),
]
