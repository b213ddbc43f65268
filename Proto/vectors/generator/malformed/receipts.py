"""Malformed seconds of tokens, and malformed frames of receipts, users and lists."""

from ..fields.channels import entry, request, row, settings_of, user_settings, viewed
from ..fields.notation import byte, encode_all, many, number, opt, string, time
from ..fields.values import CID, T0
from ..framing import altered, bad
from .payloads import ACKNOWLEDGE, LIST, MARK, MEMBER, SETTINGS, one_status

BAD_RECEIPTS = [
    # When the user's token was issued.
    bad("issued, and nothing behind the fields", "truncated", altered("mark_read", MARK, flags=2)),
    bad("issued in 3 bytes", "truncated", altered("mark_read", MARK + bytes(3), flags=2)),
    bad("issued in 5 bytes", "trailingBytes", altered("mark_read", MARK + bytes(5), flags=2)),
    bad("four bytes behind the fields, not announced", "trailingBytes", altered("mark_read", MARK + bytes(4))),
    bad("issued of a list_unsettled in no bytes", "truncated", altered("list_unsettled", b"", flags=2)),
    # Receipts, users, lists.
    bad("register_message_reply without its receipt refusal", "truncated",
        altered("register_message_reply", b"\x01\x01\x00")),
    bad("acknowledge without its messages", "truncated", altered("acknowledge", ACKNOWLEDGE)),
    bad("acknowledge of more messages than there can be", "badValue:count",
        altered("acknowledge", ACKNOWLEDGE + b"\x05\x01a")),
    bad("acknowledge with more behind it", "trailingBytes", altered("acknowledge", ACKNOWLEDGE + b"\x01\x01a\x00")),
    bad("acknowledge_reply of a code less than announced", "badValue:count", altered("acknowledge_reply", b"\x02\x00")),
    bad("patch_user without its time", "truncated",
        altered("patch_user", encode_all(settings_of("alice", 1, number("given", 1), number("values", 0))))),
    bad("assign_user without its last time", "truncated", altered("assign_user", encode_all(settings_of(
        "alice", 1, number("version", 1), number("flags", 0), time("a", T0), time("b", T0))))),
    bad("settle without its version", "truncated", altered("settle", b"\x01a\x01\x00")),
    bad("settle_reply of two bytes", "trailingBytes", altered("settle_reply", b"\x01\x00")),
    bad("get_user with more behind it", "trailingBytes", altered("get_user", b"\x01a\x00")),
    bad("settings with flag 16", "badValue:flags",
        altered("get_user_reply", encode_all(user_settings("alice", 1, 16)))),
    bad("settings of an erased user that hide", "badValue:flags",
        altered("get_user_reply", encode_all(user_settings("alice", 1, 9)))),
    bad("settings cut in a time", "truncated", altered("patch_user_reply", SETTINGS[:-1])),
    bad("settings with more behind them", "trailingBytes", altered("assign_user_reply", SETTINGS + b"\x00")),
    bad("settings whose time is above 63 bits", "badVarint",
        altered("get_user_reply", encode_all(user_settings("alice", 1, 0, 2**63)))),
    bad("settings whose user is no UTF-8", "badValue:text",
        altered("get_user_reply", b"\x02\xc3\x28" + SETTINGS[6:])),
    bad("list_unsettled with a payload", "trailingBytes", altered("list_unsettled", b"\x00")),
    bad("list_unsettled_reply without its users", "truncated", altered("list_unsettled_reply", b"\x00")),
    bad("list_unsettled_reply of more users than there can be", "badValue:count",
        altered("list_unsettled_reply", b"\x00\x09" + SETTINGS[:8])),
    bad("list_members without its cursor", "truncated", altered("list_members", LIST[:-1])),
    bad("list_members with more behind it", "trailingBytes", altered("list_members", LIST + b"\x00")),
    bad("list_members_reply of more entries than there can be", "badValue:count",
        altered("list_members_reply", b"\x03\x01a")),
    bad("list_members_reply cut in an entry", "truncated",
        altered("list_members_reply", b"\x01" + encode_all(entry("bob", T0, 1, "seen"))[:-1])),
    bad("list_members_reply without its cursor", "truncated",
        altered("list_members_reply", b"\x01" + encode_all(entry("bob", T0, 1, "seen")))),
    bad("member_statuses without its users", "truncated",
        altered("member_statuses", encode_all(viewed("alice", "m-1")))),
    bad("list_messages: a reply of no message", "badValue:count", altered("list_messages", encode_all(
        [string("cid", CID), number("limit", 1), opt("cursor", None), opt("reply", 3)]))),
    bad("list_messages_reply: unknown flags", "badValue:flags", altered("list_messages_reply", encode_all(
        [many("messages", [[number("sequence", 1), string("message", "m"), string("parent", ""), string("sender", ""),
                            time("created", T0), number("flags", 4)]]),
         opt("next_cursor", None), opt("next_reply", None)]))),
    bad("member_statuses_reply without the status it announces", "truncated",
        altered("member_statuses_reply", b"\x01\x03bob\x00")),
    bad("member_statuses_reply with a status behind a refusal", "trailingBytes",
        altered("member_statuses_reply", b"\x01\x03bob\x20" + MEMBER[5:])),
    bad("row with flag 2", "badValue:flags",
        altered("mark_read_reply", encode_all(row("alice")[:-1] + [number("flags", 2)]))),
    bad("row with flags 5", "badValue:flags",
        altered("mark_read_reply", encode_all(row("alice", own=(0, "", 1), flags=5)))),
    bad("row with flag 8", "badValue:flags",
        altered("mark_read_reply", encode_all(row("alice", own=(0, "", 1), flags=9)))),
    bad("mark_unread_since without its epoch", "truncated", altered("mark_unread_since", encode_all(
        request(CID, 47, string("user", "alice"), time("since", T0))))),
    bad("set_member without its flags", "truncated",
        altered("set_member", encode_all(request(CID, 45, string("user", "alice"), string("role", ""))))),
    bad("set_member_reply: muted 2", "badValue:flags", altered(
        "set_member_reply",
        encode_all([byte("joined", 0), string("role", ""), time("joined_at", T0), byte("muted", 2)]))),
    bad("row without the own details it announces", "truncated",
        altered("mark_read_reply", encode_all(row("alice")[:-1] + [number("flags", 1)]))),
    bad("row whose sequence number is above 32 bits", "badVarint",
        altered("mark_read_reply", encode_all(row("alice", (0, "", 2**32))))),
    bad("row whose time is above 63 bits", "badVarint",
        altered("mark_read_reply", encode_all(row("alice", (2**63, "", 0))))),
    bad("status 3", "badValue:status", altered("statuses_reply", one_status(status=3))),
    bad("receipt status 4", "badValue:status", altered("statuses_reply", one_status(receipt_status=4))),
]
