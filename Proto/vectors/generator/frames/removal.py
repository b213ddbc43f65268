"""Frames that remove channels and messages, and erase users."""

from ..fields.channels import channel, request, settings_of, user_settings
from ..fields.notation import byte, many, number, string, time
from ..fields.values import CID, T0
from ..framing import frame

REMOVAL_FRAMES = [
    # Removal, and erasing a user.
    frame("delete_channel", request(CID, 34), shard=5, correlation=28),
    frame("delete_channel_reply", [byte("deleted", 1)], shard=5, correlation=28),
    frame("delete_channel_reply", [byte("deleted", 0)], correlation=28, name="delete_channel_reply: there was none"),
    frame("truncate_channel", request(CID, 35, string("message", "")), correlation=28),
    frame("truncate_channel", request(CID, 36, string("message", "m-300")), flags=1, correlation=28, issued=1,
          name="truncate_channel: those before a message, a resend"),
    frame("truncate_channel_reply", channel(CID, T0, {}, 2, 300, "m-300", T0 + 5), correlation=28),
    frame("erase_member", request(CID, 37, string("user", "alice")), correlation=28),
    frame("erase_member_reply", [byte("erased", 1)], correlation=28),
    frame("erase_member_reply", [byte("erased", 0)], correlation=28, name="erase_member_reply: not known there"),
    frame("patch_user", settings_of(
        "alice", 38, number("given", 8), number("values", 0), time("tokens_revoked_before", 0)), correlation=28,
        name="patch_user: erase"),
    frame("patch_user_reply", user_settings("alice", 3, 4), correlation=28, name="patch_user_reply: being erased"),
    frame("assign_user", settings_of(
        "alice", 39, number("version", 3), number("flags", 4), time("read_shown_since", 0),
        time("delivered_shown_since", 0), time("tokens_revoked_before", 0)), shard=15, correlation=28,
        name="assign_user: being erased"),
    frame("assign_user", settings_of(
        "alice", 40, number("version", 4), number("flags", 8), time("read_shown_since", 0),
        time("delivered_shown_since", 0), time("tokens_revoked_before", 0)), shard=15, correlation=28,
        name="assign_user: erased"),
    frame("assign_user_reply", user_settings("alice", 4, 8), shard=15, correlation=28,
          name="assign_user_reply: erased"),
    frame("get_user_reply", user_settings("alice", 3, 7, T0, T0 + 1, T0 + 2), correlation=28,
          name="get_user_reply: being erased, and everything else"),
    frame("list_unsettled_reply", [many("types", []), many("users", [user_settings("alice", 3, 4)])], correlation=28,
          name="list_unsettled_reply: a user who is being erased"),
    frame("purge", [number("round", 0)], shard=15, correlation=28, name="purge: asked first"),
    frame("purge", [number("round", 2**64 - 1)], shard=15, correlation=28, name="purge: the last round"),
    frame("purge_reply", [number("round", 300)], shard=15, correlation=28, name="purge_reply: to be waited for"),
    frame("purge_reply", [number("round", 0)], shard=15, correlation=28, name="purge_reply: done"),
]
