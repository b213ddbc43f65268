import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

extension FrameRoundTripTests {
  /// Settings of channel types and users, and tokens.
  static let settings: [RoundTrip] = [
    .reply(.getChannelType, .patchChannelType, .assignChannelType) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let record = try reader.channelTypeRecord()
      #expect(record.name == vector.fields.text("type"))
      #expect(record.version == vector.fields.number("version"))
      buffer.writeChannelTypeRecord(record)
    },
    .reply(.getUser, .patchUser, .assignUser) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let settings = try reader.userSettings()
      expect(settings, vector.fields)
      buffer.writeUserSettings(settings)
    },
    .reply(.listUnsettled) { payload, vector, buffer in
      let unsettled = try UnsettledReply(payload)
      #expect(unsettled.types.map(\.name) == vector.fields.list("types").map { $0.text("type") })
      #expect(unsettled.users.count == vector.fields.list("users").count)
      for (settings, entry) in zip(unsettled.users, vector.fields.list("users")) { expect(settings, entry) }
      unsettled.write(into: &buffer)
    },
    .reply(.getToken, .revokeToken) { payload, vector, buffer in
      let reply = try TokenReply(payload)
      #expect(UInt64(reply.until.milliseconds) == vector.fields.number("until"))
      #expect(reply.version == vector.fields.number("version"))
      reply.write(into: &buffer)
    },
    .reply(.listChannelTypes) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let types = try reader.channelTypeRecords()
      #expect(types.map(\.name) == vector.fields.list("types").map { $0.text("type") })
      #expect(types.map(\.version) == vector.fields.list("types").map { $0.number("version") })
      buffer.writeChannelTypeRecords(types)
    },
    .reply(.listRevokedTokens) { payload, vector, buffer in
      let reply = try RevokedTokensReply(payload)
      #expect(reply.version == vector.fields.number("version"))
      #expect(reply.isAnew == (vector.fields.number("flags") & 1 != 0))
      #expect(reply.hasMore == (vector.fields.number("flags") & 2 != 0))
      #expect(UInt64(reply.ended.milliseconds) == vector.fields.number("ended"))
      let expected = vector.fields.list("revocations")
      #expect(reply.revocations.map(\.id) == expected.map { $0.text("jti") })
      #expect(reply.revocations.map { UInt64($0.until.milliseconds) } == expected.map { $0.number("until") })
      #expect(reply.revocations.map(\.version) == expected.map { $0.number("version") })
      reply.write(into: &buffer)
    },
  ]

  /// Requests about settings of channel types and users, and about tokens.
  static let settingRequests: [RoundTrip] = [
    .request(.patchChannelType) { reader, _, buffer in
      let patch = try reader.optionPatch()
      buffer.writeOptionPatch(patch)
    },
    .request(.assignChannelType) { reader, vector, buffer in
      let request = try AssignChannelTypeRequest(&reader)
      #expect(request.version == vector.fields.number("version"))
      buffer.writeAssignChannelType(version: request.version, request.options)
    },
    .request(.patchUser) { reader, vector, buffer in
      let request = try PatchUserRequest(&reader)
      #expect(request.given == vector.fields.number("given"))
      #expect(request.values == vector.fields.number("values"))
      #expect(UInt64(request.tokensRevokedBefore.milliseconds) == vector.fields.number("tokens_revoked_before"))
      guard request.given != PatchUserRequest.erase else { return buffer.writePatchErase() }
      let revokesTokens = request.given & PatchUserRequest.tokensRevoked != 0
      let patch = UserSettingsPatch(
        showsRead: request.shows(PatchUserRequest.readReceipts),
        showsDelivered: request.shows(PatchUserRequest.deliveryReceipts),
        tokensRevokedBefore: revokesTokens ? request.tokensRevokedBefore : nil
      )
      buffer.writePatchUser(patch)
    },
    .request(.assignUser) { reader, vector, buffer in
      let request = try AssignUserRequest(&reader)
      let settings = UserSettings(
        user: vector.fields.text("user"),
        version: request.version,
        hidesRead: request.flags.contains(.hidesRead),
        hidesDelivered: request.flags.contains(.hidesDelivered),
        readShownSince: request.readShownSince,
        deliveredShownSince: request.deliveredShownSince,
        tokensRevokedBefore: request.tokensRevokedBefore,
        isErasing: request.flags.contains(.erasing),
        isErased: request.flags.contains(.erased)
      )
      expect(settings, vector.fields)
      if settings.isErased {
        buffer.writeAssignErased(version: settings.version)
      } else {
        buffer.writeAssignUser(settings)
      }
    },
    .request(.settle) { reader, vector, buffer in
      let request = try SettleRequest(&reader)
      #expect(UInt64(request.subject) == vector.fields.number("what"))
      #expect(request.version == vector.fields.number("version"))
      buffer.writeSettle(isUser: request.subject == SettleRequest.user, version: request.version)
    },
    .request(.revokeToken) { reader, vector, buffer in
      let request = try RevokeTokenRequest(&reader)
      #expect(UInt64(request.isRevoked) == vector.fields.number("revoked"))
      #expect(UInt64(request.until.milliseconds) == vector.fields.number("until"))
      buffer.writeRevokeToken(until: request.isRevoked == 1 ? request.until : nil)
    },
    .request(.listRevokedTokens) { reader, vector, buffer in
      let request = try ListRevokedTokensRequest(&reader)
      #expect(request.known == vector.fields.number("known"))
      #expect(request.after == vector.fields.number("after"))
      buffer.writeListRevokedTokens(known: request.known, after: request.after)
    },
  ]

  /// Check a user's settings.
  static func expect(_ settings: UserSettings, _ fields: [Vectors.Field]) {
    #expect(settings.user == fields.text("user"))
    #expect(settings.version == fields.number("version"))
    #expect(settings.hidesRead == (fields.number("flags") & 1 != 0))
    #expect(settings.hidesDelivered == (fields.number("flags") & 2 != 0))
    #expect(settings.isErasing == (fields.number("flags") & 4 != 0))
    #expect(settings.isErased == (fields.number("flags") & 8 != 0))
    #expect(UInt64(settings.readShownSince.milliseconds) == fields.number("read_shown_since"))
    #expect(UInt64(settings.deliveredShownSince.milliseconds) == fields.number("delivered_shown_since"))
    #expect(UInt64(settings.tokensRevokedBefore.milliseconds) == fields.number("tokens_revoked_before"))
  }
}
