"""Frames of receipts, users and lists, and frames with the second of a token."""

from ..fields.channels import (
    entry, member_status, messages, page_of_members, request, settings_of, type_record, user_settings, viewed)
from ..fields.notation import byte, many, number, opt, string, time
from ..fields.values import CID, EVERY_OPTION, T0
from ..framing import frame

RECEIPT_FRAMES = [
    # Receipts, users, settling, lists.
    frame("acknowledge", request(CID, 21, string("user", "bob"), string("note", ""), messages("m-1")), correlation=17),
    frame("acknowledge", request(
        CID, 22, string("user", "bob"), string("note", "ü" * 512), messages(*(f"m-{n}" for n in range(100)))),
        flags=1, correlation=17, issued=1_700_000_000,
        name="acknowledge: the longest note, the most messages, a resend"),
    frame("acknowledge_reply", [many("codes", [[number("code", n)] for n in (0, 33, 34, 40, 41, 42)])], correlation=17),
    frame("patch_user", settings_of(
        "alice", 23, number("given", 5), number("values", 0), time("tokens_revoked_before", T0)), correlation=18),
    frame("patch_user", settings_of(
        "a" * 128, 24, number("given", 7), number("values", 3), time("tokens_revoked_before", 0)), correlation=18,
        issued=2**32 - 1, name="patch_user: everything given, the longest id"),
    frame("patch_user_reply", user_settings("alice", 1, 1, revoked=T0), correlation=18),
    frame("assign_user", settings_of(
        "alice", 25, number("version", 2**62), number("flags", 3), time("read_shown_since", T0),
        time("delivered_shown_since", T0 + 1), time("tokens_revoked_before", T0 + 2)), shard=15, correlation=19),
    frame("assign_user_reply", user_settings("alice", 2**64 - 1, 3, 2**63 - 1, 1, 127), shard=15, correlation=19),
    frame("settle", [string("name", "messaging"), number("counter", 26), byte("what", 0), number("version", 3)],
          correlation=20),
    frame("settle", [string("name", "alice"), number("counter", 27), byte("what", 1), number("version", 2**62)],
          correlation=20, name="settle: a user"),
    frame("settle_reply", [byte("settled", 1)], correlation=20),
    frame("settle_reply", [byte("settled", 0)], correlation=20, name="settle_reply: there is a newer version"),
    frame("get_user", [string("user", "alice")], correlation=21),
    frame("get_user_reply", user_settings("alice"), correlation=21),
    frame("list_unsettled", [], shard=7, correlation=22),
    frame("list_unsettled_reply", [many("types", []), many("users", [])], shard=7, correlation=22),
    frame("list_unsettled_reply", [
        many("types", [type_record("a", 1, {}), type_record("messaging", 3, EVERY_OPTION)]),
        many("users", [user_settings("alice", 9, 2, T0), user_settings("bob", 1, 0, 0, T0, T0)])],
        shard=7, correlation=22, name="list_unsettled_reply: both"),
    frame("list_members", page_of_members("alice", "m-1", 0, 0, 100, ""), correlation=23),
    frame("list_members", page_of_members("", "m-1", 1, 1, 1, f"t{T0}-bob", flags=1), correlation=23,
          name="list_members: a server, what was delivered, by time, from a cursor on"),
    frame("list_members", page_of_members("alice", "m-1", 2, 0, 50, "j255"), correlation=23, issued=0,
          name="list_members: the unread ones, by a token without a time"),
    frame("list_members", page_of_members("alice", "m-1", 0, 2, 100, f"d{T0}-bob"), correlation=23,
          name="list_members: the newest first, from a cursor on"),
    frame("list_members_reply", [
        many("entries", [entry("bob", T0, 1, "seen"), entry("carol", T0 + 1, 0), entry("dave", note="n" * 1024)]),
        string("next_cursor", "j7")], correlation=23),
    frame("list_members_reply", [many("entries", []), string("next_cursor", "")], correlation=23,
          name="list_members_reply: nobody"),
    frame("list_members_reply", [many("entries", []), string("next_cursor", ""), number("total", 0)], correlation=23,
          name="list_members_reply: the first page, nobody"),
    frame("list_members_reply", [many("entries", []), string("next_cursor", "j7"), number("total", 2**32 - 1)],
          correlation=23, name="list_members_reply: the first page, the largest total"),
    frame("member_statuses", viewed("alice", "m-1") + [many("users", [[string("user", "bob")]])], correlation=24),
    frame("member_statuses", viewed("alice", "m-1", 1) + [
        many("users", [[string("user", f"user-{n}")] for n in range(100)])], correlation=24,
        name="member_statuses: a server for alice, the most users"),
    frame("member_statuses_reply", [many("statuses", [
        member_status("bob", 2, T0 + 1, T0), [string("user", "eve"), number("found", 32)],
        [string("user", "fay"), number("found", 43)], [string("user", "gil"), number("found", 39)],
        member_status("hal", 1, 0, T0, 1), member_status("ivy", 0),
        member_status("jan", 1, 0, T0, 7, T0 + 3), member_status("kim", 0, 0, 0, 4, 2**63 - 1),
        member_status("lea", 2, T0, T0, 2)])], correlation=24),
    frame("list_roster", [string("cid", CID), number("viewer_flags", 0), string("viewer", "alice"),
                          number("limit", 100), opt("cursor", None)],
          correlation=24),
    frame("list_roster", [string("cid", CID), number("viewer_flags", 1), string("viewer", ""), number("limit", 1),
                          opt("cursor", 2**32 - 1)],
          correlation=24, name="list_roster: a server, from the last row on"),
    frame("list_roster_reply", [
        many("members", [[string("user", "alice"), string("role", "owner"), time("joined_at", T0), number("muted", 1)],
                         [string("user", "b" * 255), string("role", ""), time("joined_at", T0 + 1),
                          number("muted", 0)]]), opt("next_cursor", 2)], correlation=24),
    frame("list_roster_reply", [many("members", []), opt("next_cursor", None)], correlation=24,
          name="list_roster_reply: nobody"),
    frame("list_messages", [string("cid", CID), number("limit", 100), opt("cursor", None), opt("reply", None)],
          correlation=24),
    frame("list_messages", [string("cid", CID), number("limit", 1), opt("cursor", 7), opt("reply", 0)], correlation=24,
          name="list_messages: behind the replies to message 7"),
    frame("list_messages_reply", [
        many("messages", [
            [number("sequence", 1), string("message", "r-1"), string("parent", "m-2"), string("sender", ""),
             time("created", T0 + 2), number("flags", 1)],
            [number("sequence", 2), string("message", "m-2"), string("parent", ""), string("sender", "alice"),
             time("created", T0), number("flags", 3)]]),
        opt("next_cursor", 1), opt("next_reply", None)], correlation=24),
    frame("list_messages_reply", [many("messages", []), opt("next_cursor", None), opt("next_reply", None)],
          correlation=24, name="list_messages_reply: none"),

    # When the user's token was issued.
    frame("mark_read", request(CID, 28, string("user", "alice"), string("message", "m-1"), opt("unread_epoch", None)),
          shard=11, correlation=25, issued=1_700_000_000, name="mark_read: for a token of that second"),
    frame("mark_delivered", request(CID, 29, string("user", "alice"), string("message", "")), flags=1, correlation=25,
          issued=0, name="mark_delivered: a resend, for a token that says no time"),
    frame("read_state", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"), number("limit", 100), opt("cursor", None)),
        correlation=25, issued=2**32 - 1, name="read_state: the last second there is"),
    frame("get_user", [string("user", "alice")], correlation=25, issued=1_700_000_000,
          name="get_user: for a token of that second"),
    frame("list_unsettled", [], correlation=25, issued=1, name="list_unsettled: nothing but the second"),
]
