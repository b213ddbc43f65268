package import NIOCore
package import ReceiptModel

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let backupRequests: [RequestSpec] = [
    RequestSpec(.backupBegin, "backup_begin", reply: "store:bytes(16) time indexes:[index] files:[name size]"),
    RequestSpec(.backupRead, "backup_read", "file offset count", reply: "digest:bytes(32) bytes:rest"),
    RequestSpec(.backupDigest, "backup_digest", "file offset count", reply: "digest:bytes(32)"),
    RequestSpec(.backupEnd, "backup_end"),
  ]
}

/// The limits of the backup frames (Proto/frames.md, "Backup").
package enum BackupLimits {
  /// Maximum number of a file's bytes in one *backup_read*; with its frame well below the limit of a frame's length.
  package static let chunkBytesMax: UInt64 = 1 << 19
  /// Maximum number of a file's bytes in one *backup_digest*.
  package static let digestBytesMax: UInt64 = 1 << 24
  /// Size of a SHA-256 digest in bytes.
  package static let digestByteCount = 32
  /// Maximum number of unanswered backup requests on one connection.
  package static let inFlightMax = 8
  /// Maximum length of a file's name in bytes.
  package static let nameLengthMax = 64

  /// Return whether a name is allowed for a file in a checkpoint: it cannot lead out of the directory that it is
  /// written to.
  package static func isFileName(_ name: String) -> Bool {
    let bytes = name.utf8
    return !bytes.isEmpty && bytes.count <= nameLengthMax && bytes.first != UInt8(ascii: ".")
      && bytes.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
          true
        default: false
        }
      }
  }
}

/// The reply to *backup_begin*: the content of the checkpoint.
package struct BackupContents: Hashable, Sendable {
  /// One file of the checkpoint; later requests name it by its index in the list.
  package struct File: Hashable, Sendable {
    package var name: String
    package var size: UInt64

    package init(name: String, size: UInt64) {
      self.name = name
      self.size = size
    }
  }

  package var store: SessionID
  /// When the checkpoint was begun, by the store's clock.
  package var time: Timestamp
  /// Per shard, the log index up to which the checkpoint is durable; it may contain more.
  package var indexes: [LogIndex]
  package var files: [File]

  package init(store: SessionID, time: Timestamp, indexes: [LogIndex], files: [File]) {
    self.store = store
    self.time = time
    self.indexes = indexes
    self.files = files
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    store = try reader.sessionID()
    time = try reader.time()
    indexes = []
    for _ in 0..<(try reader.count()) { indexes.append(LogIndex(try reader.varint())) }
    files = []
    for _ in 0..<(try reader.count(elementBytesMin: 2)) {
      let name = try reader.text()
      guard BackupLimits.isFileName(name) else { throw .badValue(.text) }
      files.append(File(name: name, size: try reader.varint()))
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeSessionID(store)
    buffer.writeTime(time)
    buffer.writeVarint(indexes.count)
    for index in indexes { buffer.writeVarint(index.rawValue) }
    buffer.writeVarint(files.count)
    for file in files {
      buffer.writeField(file.name)
      buffer.writeVarint(file.size)
    }
  }
}

/// The fields of *backup_read* and *backup_digest*: a part of a file.
package struct BackupPart: Hashable, Sendable {
  /// The file's index in the list of *backup_begin*'s reply.
  package var file: UInt32
  package var offset: UInt64
  package var count: UInt64

  package init(file: UInt32, offset: UInt64, count: UInt64) {
    self.file = file
    self.offset = offset
    self.count = count
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    file = try reader.varint32()
    offset = try reader.varint()
    count = try reader.varint()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(file)
    buffer.writeVarint(offset)
    buffer.writeVarint(count)
  }
}
