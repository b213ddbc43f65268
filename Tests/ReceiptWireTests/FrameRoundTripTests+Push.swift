import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

extension FrameRoundTripTests {
  /// Push tickets.
  static let push: [RoundTrip] = [
    .reply(.ticketPlace) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let place = try reader.ticketPlace()
      #expect(place.channel.rawValue == vector.fields.number("channel"))
      #expect(UInt64(place.row.rawValue) == vector.fields.number("row"))
      #expect(place.parent.map { UInt64($0.rawValue) } == vector.fields.optional("parent"))
      #expect(UInt64(place.sequence.rawValue) == vector.fields.number("sequence"))
      #expect(place.check == vector.fields.bytes("check").reduce(0) { $0 << 8 | UInt64($1) })
      buffer.writeTicketPlace(place)
    },
    .request(.acknowledgePush) { reader, vector, buffer in
      let request = try AcknowledgePushRequest(&reader)
      #expect(text(request.user) == vector.fields.text("user"))
      #expect(text(request.message) == vector.fields.text("message"))
      #expect(UInt64(request.acked.milliseconds) == vector.fields.number("acked"))
      expect(request.flags, provider: request.provider, device: request.device, vector.fields)
      buffer.writeAcknowledgePush(
        user: request.user,
        message: request.message,
        acked: request.acked,
        wantsNames: request.flags & PushFlags.names != 0,
        provider: request.provider,
        device: request.device
      )
    },
    .request(.redeemTicket) { reader, vector, buffer in
      let request = try RedeemTicketRequest(&reader)
      #expect(request.place.channel.rawValue == vector.fields.number("channel"))
      #expect(UInt64(request.acked.milliseconds) == vector.fields.number("acked"))
      expect(request.flags, provider: request.provider, device: request.device, vector.fields)
      var place = ByteBuffer()
      place.writeTicketPlace(request.place)
      buffer.writeRedeemTicket(
        place: place.readableBytesSpan,
        acked: request.acked,
        wantsNames: request.flags & PushFlags.names != 0,
        provider: request.provider,
        device: request.device
      )
    },
    .reply(.acknowledgePush, .redeemTicket, .presentTicket) { payload, vector, buffer in
      let delivery = try DeliveryReply(payload)
      #expect(delivery.moved == (vector.fields.number("moved") & 1 == 1))
      #expect(UInt64(delivery.sent.milliseconds) == vector.fields.number("sent"))
      #expect(UInt64(delivery.delivered.milliseconds) == vector.fields.number("delivered"))
      #expect(text(delivery.cid) == vector.fields.text("cid"))
      #expect(text(delivery.user) == vector.fields.text("user"))
      #expect(
        text(delivery.message) == vector.fields.text("message")
      )
      DeliveryReply.write(
        moved: delivery.moved,
        delivery.uncounted,
        sent: delivery.sent,
        delivered: delivery.delivered,
        hasNames: !delivery.cid.isEmpty,
        names: { names in
          names.string(delivery.cid)
          names.string(delivery.user)
          names.string(delivery.message)
        },
        into: &buffer
      )
    },
    .request(.ticketPlace) { reader, vector, buffer in
      let request = try TicketPlaceRequest(&reader)
      #expect(text(request.user) == vector.fields.text("user"))
      #expect(text(request.message) == vector.fields.text("message"))
      buffer.writeTicketPlaceRequest(user: request.user, message: request.message)
    },
    .request(.presentTicket) { reader, vector, buffer in
      let request = try PresentTicketRequest(&reader)
      #expect(text(request.ticket) == vector.fields.text("ticket"))
      #expect(UInt64(request.acked.milliseconds) == vector.fields.number("acked"))
      #expect(request.flags == vector.fields.number("flags"))
      buffer.writePresentTicket(request.ticket, acked: request.acked, wantsNames: request.flags == 1)
    },
  ]

  /// Push jobs.
  static let pushJobs: [RoundTrip] = [
    .request(.putPushJob) { reader, vector, buffer in
      let request = try PutPushJobRequest(&reader)
      #expect(request.message == Array(vector.fields.text("message").utf8))
      #expect(request.key == vector.fields.number("key"))
      #expect(request.milliseconds == vector.fields.number("milliseconds"))
      #expect(request.content == Array(vector.fields.text("content").utf8))
      #expect(request.users == users(vector.fields))
      request.write(into: &buffer)
    },
    .reply(.putPushJob) { payload, vector, buffer in
      let reply = try PutPushJobReply(payload)
      #expect(reply.accepted == vector.fields.number("accepted"))
      reply.write(into: &buffer)
    },
    .request(.claimPushJobs) { reader, vector, buffer in
      let request = try ClaimPushJobsRequest(&reader)
      #expect(request.milliseconds == vector.fields.number("milliseconds"))
      #expect(request.limit == vector.fields.number("limit"))
      #expect(request.byteCountMax == vector.fields.number("bytes"))
      request.write(into: &buffer)
    },
    .reply(.claimPushJobs) { payload, vector, buffer in
      let reply = try PushJobsReply(payload)
      #expect(reply.hasMore == (vector.fields.number("more") == 1))
      let expected = vector.fields.list("jobs")
      #expect(reply.jobs.count == expected.count)
      for ((claim, job), fields) in zip(reply.jobs, expected) {
        #expect(claim == fields.number("claim"))
        #expect(job.key == fields.number("key"))
        #expect(UInt64(job.createdAt.milliseconds) == fields.number("created"))
        #expect(UInt64(job.expiresAt.milliseconds) == fields.number("expires_at"))
        #expect(job.content == Array(fields.text("content").utf8))
        #expect(job.users == users(fields))
      }
      reply.write(into: &buffer)
    },
    .request(.updatePushJobs) { reader, vector, buffer in
      let request = try UpdatePushJobsRequest(&reader)
      #expect(request.isDone == (vector.fields.number("done") == 1))
      #expect(request.milliseconds == vector.fields.number("milliseconds"))
      #expect(request.jobs.map(\.key) == vector.fields.list("jobs").map { $0.number("key") })
      #expect(request.jobs.map(\.claim) == vector.fields.list("jobs").map { $0.number("claim") })
      request.write(into: &buffer)
    },
    .reply(.updatePushJobs) { payload, vector, buffer in
      let reply = try UpdatePushJobsReply(payload)
      #expect(reply.unknown.map(\.key) == vector.fields.list("unknown").map { $0.number("key") })
      #expect(reply.unknown.map(\.claim) == vector.fields.list("unknown").map { $0.number("claim") })
      reply.write(into: &buffer)
    },
  ]

  private static func users(_ fields: [Vectors.Field]) -> [PushJob.User] {
    fields.list("users").map {
      PushJob.User(id: Array($0.text("user").utf8), devices: Array($0.text("devices").utf8))
    }
  }

  /// Check the flags of a push ack, and the provider and device that follow flag 2; without it both are empty.
  private static func expect(_ flags: UInt64, provider: RawSpan, device: RawSpan, _ fields: [Vectors.Field]) {
    #expect(flags == fields.number("flags"))
    let hasSource = flags & PushFlags.source != 0
    #expect(text(provider) == (hasSource ? fields.text("provider") : ""))
    #expect(text(device) == (hasSource ? fields.text("device") : ""))
  }
}
