"""Frames of channels, their types and their options."""

from ..fields.channels import channel, members, reminders, request, row, status, type_record, typed
from ..fields.notation import byte, many, number, opt, options, string, time
from ..fields.values import CID, EVERY_OPTION, NULL_OPTIONS, T0, nullable, request_roles, rule_count, rule_percentage
from ..framing import frame

CHANNEL_FRAMES = [
    frame("put_channel", request(
        CID, 1, options("patch", {1: "00", 3: "02"}), members("members", ("alice", ""), ("bob", "moderator"))),
        shard=5, correlation=0x10001),
    frame("put_channel_reply", [byte("was_created", 1)] + channel(CID, T0, {1: "00", 3: "02"}, 2, 0, "", 0),
          shard=5, correlation=0x10001),
    frame("put_channel", request("a:b", 2, options("patch", {}), members("members")), name="put_channel: empty"),
    frame("change_members", request(
        CID, 128, members("add", ("carol@example.org", "admin")), many("remove", [[string("user", "bob")]])),
        shard=65535, correlation=2),
    frame("change_members_reply", channel(CID, T0, {}, 2, 300, "m-300", T0 + 5), correlation=2),
    frame("register_message", request(
        CID, 16384, string("message", "m-1"), string("user", "alice"), time("created", T0), number("flags", 0)),
        correlation=3),
    frame("register_message", request(
        CID, 2**63, string("message", "m" * 128), string("user", ""), time("created", 0), number("flags", 1)),
        correlation=3, name="register_message: silent, by the system, a high counter"),
    frame("register_message", request(
        CID, 17, string("message", "m-2"), string("user", "alice"), time("created", 0), number("flags", 3)),
        correlation=3, name="register_message: silent, with a receipt"),
    frame("register_message", request(
        CID, 18, string("message", "m-3"), string("user", "alice"), time("created", 0), number("flags", 4)),
        correlation=3, name="register_message: moves no position"),
    frame("register_message", request(
        CID, 19, string("message", "m-4"), string("user", "alice"), time("created", 0), number("flags", 8)),
        correlation=3, name="register_message: mentions all"),
    frame("register_message", request(
        CID, 20, string("message", "m-5"), string("user", "alice"), time("created", 0), number("flags", 16),
        many("mentions", [[string("user", "bob")], [string("user", "carol")]])),
        correlation=3, name="register_message: mentions two"),
    frame("register_message", request(
        CID, 21, string("message", "m-6"), string("user", "alice"), time("created", 0), number("flags", 48),
        many("mentions", [[string("user", "bob")]]), reminders((300, 1, 1_000), (86_400, 2, 100_000))),
        correlation=3, name="register_message: mentions one, with two reminders"),
    frame("register_message", request(
        CID, 22, string("message", "m-7"), string("user", "alice"), time("created", 0), number("flags", 32),
        reminders()), correlation=3, name="register_message: no reminders, whatever its channel has"),
    frame("register_message_reply", [
        byte("was_created", 1), number("sequence", 1), byte("status", 0), byte("receipt_refusal", 0)], correlation=3),
    frame("register_message_reply", [
        byte("was_created", 0), number("sequence", 2), byte("status", 2), byte("receipt_refusal", 1)], correlation=3,
        name="register_message_reply: the day has its receipts"),
    frame("register_message_reply", [
        byte("was_created", 1), number("sequence", 3), byte("status", 0), byte("receipt_refusal", 2)], correlation=3,
        name="register_message_reply: a receipt is not this sender's to ask for"),
    frame("delete_message", request(CID, 5, string("message", "m-1")), correlation=4),
    frame("delete_message_reply", [number("sequence", 4294967294)], correlation=4),
    frame("mark_read", request(CID, 6, string("user", "alice"), string("message", "m-1"), opt("unread_epoch", None)),
          shard=11, correlation=5),
    frame("mark_read", request(CID, 6, string("user", "alice"), string("message", ""), opt("unread_epoch", 0)),
          flags=1, shard=11, correlation=5, name="mark_read: to the newest, epoch 0, a resend"),
    frame("mark_read_reply", row("alice", (T0, "m-1", 1), (T0 - 5, "m-2", 2), (1, "m-2", 0), joined=0), correlation=5),
    frame("mark_unread", request(CID, 7, string("user", "alice"), string("message", "m-1"), opt("unread_epoch", 127)),
          correlation=6),
    frame("mark_unread_reply", row("alice", (T0, "m-9", 9), own=(4294967295, "m-1", 3), joined=2**32 - 1),
          correlation=6),
    frame("mark_delivered", request(CID, 8, string("user", "bob"), string("message", "m-1")), correlation=7),
    frame("mark_delivered_reply", row("bob", (T0, "", 0), (T0, "m-1", 1)), correlation=7),
    frame("patch_channel_type", typed("messaging", 9, options("patch", {1: "01", 2: "00", 3: "01", 4: "01"})),
          shard=1, correlation=8),
    frame("patch_channel_type_reply", type_record("messaging", 2, {2: "00", 3: "01", 4: "01"}), correlation=8),
    frame("assign_channel_type", typed("team", 10, number("version", 7), options("options", {4: "01"})),
          correlation=9),
    frame("assign_channel_type_reply", type_record("team", 2**64 - 1, {4: "01"}), correlation=9),
    frame("get_channel", request(), correlation=10),
    frame("get_channel_reply", channel(CID, T0, {4: "01"}, 16777216, 4294967294, "m-x", T0), correlation=10),
    frame("read_state", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"), number("limit", 100), opt("cursor", None)),
        correlation=11),
    frame("read_state", request(
        CID, None, number("viewer_flags", 1), string("viewer", ""), number("limit", 1), opt("cursor", 0)),
        correlation=11, name="read_state: a server, the last page"),
    frame("read_state_reply", [
        many("rows", [row("bob", (T0, "", 0)), row("alice", (T0, "m-1", 1), (T0, "m-2", 2), (1, "m-2", 0))]),
        opt("next_cursor", 255)], correlation=11),
    frame("statuses", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"),
        many("messages", [[string("message", "m-1")], [string("message", "gone")]])), correlation=12),
    frame("statuses_reply", [many("statuses", [
        [byte("found", 0)] + status(1, 2, 3, 4, 5, 3, T0), [byte("found", 33)], [byte("found", 34)],
        [byte("found", 0)] + status(2, 0, 0, 0, 0, 0, T0),
        [byte("found", 0)] + status(3, 1, 0, 2, 5, 6, T0, 2, 1)])], correlation=12),
    frame("get_channel_type", typed("messaging"), shard=4, correlation=13),
    frame("get_channel_type_reply", type_record("messaging", 0, {}), correlation=13),
    frame("list_channel_types", [], correlation=14),
    frame("list_channel_types_reply", [many("types", [type_record("a", 1, {}), type_record("b", 2, {1: "00"})])],
          correlation=14),

    # Every option, and every form of its value.
    frame("patch_channel_type", typed("messaging", 18, options("patch", EVERY_OPTION)), correlation=15,
          name="patch_channel_type: every option"),
    frame("patch_channel_type_reply", type_record("messaging", 3, EVERY_OPTION), correlation=15,
          name="patch_channel_type_reply: every option"),
    frame("patch_channel_type", typed("messaging", 19, options("patch", NULL_OPTIONS)), correlation=16,
          name="patch_channel_type: what can be null is"),
    frame("put_channel", request(
        CID, 20, options("patch", NULL_OPTIONS | {5: "02", 10: "00", 11: "00", 12: "00"}), members("members")),
        correlation=16, name="put_channel: null, and the lowest of choices and numbers"),
    frame("get_channel_reply", channel(
        CID, T0, {6: nullable(2**32 - 1), 7: nullable(0), 8: nullable(2**32 - 1)}, 2, 0, "", 0), correlation=16,
        name="get_channel_reply: the ends of what can be null"),
    frame("get_channel_type_reply", type_record("messaging", 4, {9: request_roles(), 11: "01"}), correlation=16,
          name="get_channel_type_reply: no role may ask, all have to read"),
    frame("get_channel_type_reply", type_record(
        "messaging", 5, {9: request_roles(*(f"{n:02}" + "r" * 62 for n in range(64))), 11: rule_count(2**32 - 1)}),
        correlation=16, name="get_channel_type_reply: the most and longest roles, the highest count"),
    frame("get_channel_type_reply", type_record("messaging", 6, {11: rule_count(1), 12: "3f"}), correlation=16,
          name="get_channel_type_reply: one member, 63 steps"),
    frame("get_channel_type_reply", type_record("messaging", 7, {6: nullable(1), 11: rule_percentage(1)}),
          correlation=16, name="get_channel_type_reply: one second, 1 %"),
    frame("get_channel_type_reply", type_record("messaging", 8, {11: rule_percentage(100)}), correlation=16,
          name="get_channel_type_reply: 100 %"),
]
