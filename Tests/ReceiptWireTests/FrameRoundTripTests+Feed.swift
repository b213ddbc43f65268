import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

extension FrameRoundTripTests {
  /// The feed and its consumers.
  static let feed: [RoundTrip] = [
    .request(.readFeed) { reader, vector, buffer in
      let request = try ReadFeedRequest(&reader)
      expect(request.partition, vector.fields)
      #expect(request.epoch == vector.fields.number("epoch"))
      #expect(request.number == vector.fields.number("number"))
      #expect(request.flags == vector.fields.number("flags"))
      #expect(UInt64(request.limit) == vector.fields.number("limit"))
      request.write(into: &buffer)
    },
    .request(.putConsumer) { reader, vector, buffer in
      let request = try PutConsumerRequest(&reader)
      #expect(UInt64(request.kinds.rawValue) == vector.fields.number("kinds"))
      #expect(request.channelTypes == vector.fields.list("channel_types").map { $0.text("type") })
      #expect(UInt64(request.start.rawValue) == vector.fields.number("start"))
      #expect(UInt64(request.since.milliseconds) == vector.fields.number("since"))
      request.write(into: &buffer)
    },
    .request(.openPartition) { reader, vector, buffer in
      let request = try OpenPartitionRequest(&reader)
      expect(request.partition, vector.fields)
      #expect(request.epoch == vector.fields.number("epoch"))
      request.write(into: &buffer)
    },
    .request(.commitConsumer) { reader, vector, buffer in
      let request = try CommitConsumerRequest(&reader)
      let flags = vector.fields.number("flags")
      expect(request.partition, vector.fields)
      #expect((request.commit.position != nil) == (flags & 1 != 0))
      if let position = request.commit.position {
        #expect(position.number == vector.fields.number("number"))
        #expect(UInt64(position.time.milliseconds) == vector.fields.number("position_time"))
      }
      #expect(request.commit.state == (flags & 2 == 0 ? nil : Array(vector.fields.text("state").utf8)))
      #expect(request.commit.epoch == (flags & 4 == 0 ? nil : vector.fields.number("epoch")))
      request.write(into: &buffer)
    },
    .request(.leasePartitions) { reader, vector, buffer in
      let lease = try LeasePartitionsRequest(&reader)
      #expect(lease.request.worker == vector.fields.text("worker"))
      #expect(UInt64(lease.request.partitionCount) == vector.fields.number("partitions"))
      #expect(UInt64(lease.request.milliseconds) == vector.fields.number("milliseconds"))
      #expect(lease.request.held.map { UInt64($0) } == vector.fields.list("held").map { $0.number("index") })
      lease.write(into: &buffer)
    },
    .reply(.listConsumers) { payload, vector, buffer in
      let reply = try ConsumersReply(payload)
      #expect(reply.retentionMilliseconds == vector.fields.number("retention"))
      #expect(reply.end == vector.fields.number("end"))
      let expected = vector.fields.list("consumers")
      #expect(reply.entries.count == expected.count)
      for (entry, fields) in zip(reply.entries, expected) {
        expect(entry.consumer, fields)
        #expect(entry.states.count == fields.list("states").count)
        for (state, stored) in zip(entry.states, fields.list("states")) {
          expect(state.partition, stored)
          #expect(state.bytes == Array(stored.text("state").utf8))
        }
      }
      reply.write(into: &buffer)
    },
    .reply(.readFeed) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let reply = try ReadFeedReply(&reader)
      #expect(reply.number == vector.fields.number("number"))
      #expect(reply.end == vector.fields.number("end"))
      #expect(UInt64(reply.through.milliseconds) == vector.fields.number("through"))
      #expect(UInt64(reply.gapTo.milliseconds) == vector.fields.number("gap_to"))
      reply.write(into: &buffer)
      // The store writes the records from its state.
      let start = reader.offset
      let expected = vector.fields.list("records")
      let count = try reader.count(elementBytesMin: NamedFeedRecord.byteCountMin)
      #expect(count == expected.count)
      for fields in expected {
        let record = try NamedFeedRecord(&reader)
        expect(record, fields)
      }
      try reader.end()
      buffer.writeRaw(payload.extracting(start..<payload.byteCount))
    },
    .reply(.openPartition) { payload, vector, buffer in
      let reply = try OpenPartitionReply(payload)
      #expect(reply.position == vector.fields.number("number"))
      #expect(UInt64(reply.positionTime.milliseconds) == vector.fields.number("position_time"))
      #expect(reply.state == Array(vector.fields.text("state").utf8))
      reply.write(into: &buffer)
    },
    .reply(.leasePartitions) { payload, vector, buffer in
      let reply = try LeasePartitionsReply(payload)
      #expect(UInt64(reply.workerCount) == vector.fields.number("workers"))
      #expect(reply.partitions.map { UInt64($0) } == vector.fields.list("granted").map { $0.number("index") })
      reply.write(into: &buffer)
    },
  ]

  private static func expect(_ partition: FeedPartition, _ fields: [Vectors.Field]) {
    #expect(UInt64(partition.index) == fields.number("index"))
    #expect(UInt64(partition.count) == fields.number("partitions"))
  }

  private static func expect(_ consumer: FeedConsumer, _ fields: [Vectors.Field]) {
    #expect(consumer.name == fields.text("consumer"))
    #expect(UInt64(consumer.kinds.rawValue) == fields.number("kinds"))
    #expect(consumer.channelTypes == fields.list("channel_types").map { $0.text("type") })
    #expect(UInt64(consumer.since.milliseconds) == fields.number("since"))
    #expect(consumer.position == fields.number("number"))
    #expect(UInt64(consumer.positionTime.milliseconds) == fields.number("position_time"))
    #expect(UInt64(consumer.committedAt.milliseconds) == fields.number("committed_at"))
    expect(consumer.partition, fields)
    #expect(consumer.epoch == fields.number("epoch"))
  }

  private static func expect(_ record: borrowing NamedFeedRecord, _ fields: [Vectors.Field]) {
    let numbers = [
      UInt64(record.kind.rawValue), record.number, UInt64(record.at.milliseconds), UInt64(record.sequence.rawValue),
      record.first, record.second,
    ]
    #expect(numbers == ["kind", "number", "at", "sequence", "first", "second"].map { fields.number($0) })
    let texts = [
      text(record.cid), text(record.user), text(record.message), text(record.thread), text(record.text),
      text(record.detail),
    ]
    #expect(texts == ["cid", "user", "message", "thread", "text", "detail"].map { fields.text($0) })
    var users: [String] = []
    record.users?.forEach { users.append(text($0)) }
    #expect(users == (record.kind == .reminderDue ? fields.list("users").map { $0.text("user") } : []))
  }
}
