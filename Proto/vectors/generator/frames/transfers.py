"""Frames of import and export."""

from ..fields.channels import request, user_settings
from ..fields.notation import byte, many, number, opt, options, string, time
from ..fields.transfers import WHOLE_MEMBER, WHOLE_MESSAGE, moved_acknowledgement, moved_member, moved_message
from ..fields.values import CID, T0
from ..framing import frame

TRANSFER_FRAMES = [
    # Import and export.
    frame("import_channel", request(CID, 1, time("created", T0), options("patch", {})), correlation=60),
    frame("import_channel", request(CID, 2**64 - 1, time("created", 0), options("patch", {1: "00", 2: "01"})),
          correlation=60, name="import_channel: now, with options"),
    frame("import_channel_reply", [byte("was_created", 1)], correlation=60),
    frame("import_messages", request(CID, 1, many("messages", [])), correlation=61, name="import_messages: none"),
    frame("import_messages", request(CID, 2, many("messages", [
        moved_message("m1", "alice", "", 1, T0), moved_message("m2"), WHOLE_MESSAGE])), shard=3, correlation=61),
    frame("import_messages_reply", [many("codes", [])], correlation=61, name="import_messages_reply: none"),
    frame("import_messages_reply", [many("codes", [[number("code", n)] for n in (0, 71, 0)])], correlation=61),
    frame("import_members", request(CID, 1, many("members", [])), correlation=62, name="import_members: none"),
    frame("import_members", request(CID, 3, many("members", [
        moved_member("alice"), moved_member("bob", "admin", "", 9, 0, T0, 0, ("m2", T0 + 2), ("m2", T0 + 1), "m1", 1,
                                            (2, 1), 0, (None, None), (0, 1, T0 + 1), (0, 2, T0 + 2), (1, 2, T0 + 1)),
        WHOLE_MEMBER])), shard=3, correlation=62),
    frame("import_members_reply", [many("codes", [[number("code", n)] for n in (0, 72, 65535)])], correlation=62),
    frame("import_acknowledgements", request(CID, 4, many("acknowledgements", [
        moved_acknowledgement("m1", "bob", T0, "on my way"),
        moved_acknowledgement("m" * 255, "u" * 255, 2**63 - 1, "n" * 1024, 1)])), correlation=63),
    frame("import_acknowledgements_reply", [many("codes", [[number("code", n)] for n in (0, 40)])], correlation=63),
    frame("list_stored_channels", [number("after", 0), number("limit", 256)], shard=3, correlation=64),
    frame("list_stored_channels_reply", [many("channels", []), opt("next", None)], correlation=64,
          name="list_stored_channels_reply: none"),
    frame("list_stored_channels_reply", [
        many("channels", [[string("cid", CID)], [string("cid", "team:a")]]), opt("next", 2**64 - 2)], correlation=64),
    frame("export_channel", [string("cid", CID), string("user", ""), number("snapshot", 0), number("part", 0)],
          shard=3, correlation=65),
    frame("export_channel", [string("cid", CID), string("user", "u" * 255), number("snapshot", 2**64 - 1),
                             number("part", 2**64 - 1)], shard=3, correlation=65, name="export_channel: the last part"),
    frame("export_channel_reply", [number("snapshot", 0), number("parts", 1)] + [
        many(name, []) for name in ("channels", "messages", "members", "acknowledgements")], correlation=65,
          name="export_channel_reply: nothing"),
    frame("export_channel_reply", [
        number("snapshot", 7), number("parts", 2),
        many("channels", [[time("created", T0), options("patch", {1: "00"})]]),
        many("messages", [WHOLE_MESSAGE]), many("members", [WHOLE_MEMBER]),
        many("acknowledgements", [moved_acknowledgement("m1", "bob", 0)])], correlation=65),
    frame("list_users", [number("after", 2**64 - 1), number("limit", 1)], correlation=66),
    frame("list_users_reply", [many("users", []), opt("next", None)], correlation=66, name="list_users_reply: none"),
    frame("list_users_reply", [many("users", [user_settings("alice", 3, 1), user_settings("bob", 1, 0, T0, T0, T0)]),
                               opt("next", 2)], correlation=66),
]
