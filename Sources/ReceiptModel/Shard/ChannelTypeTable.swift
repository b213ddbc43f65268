/// The channel types of a shard with their options. Types whose options were never set have the defaults; they are
/// known only because a channel has that type, and are neither logged nor listed.
package struct ChannelTypeTable: ~Copyable, Sendable {
  /// Maximum number of channel types with set options: a listing sends all of them in one frame.
  package static let typesMax = 1_024

  private var records: [ChannelTypeRecord] = []
  private var positions: [String: Int] = [:]
  /// By type index: the options before the last change, for channels with subscribers.
  private var optionsBefore: [Int: ChannelTypeOptions] = [:]

  /// A type's record, by its index.
  package subscript(position: Int) -> ChannelTypeRecord { records[position] }

  /// Whether no type is known.
  package var isEmpty: Bool { records.isEmpty }

  /// The types whose options were set.
  var setRecords: [ChannelTypeRecord] { records.filter { $0.version > 0 } }

  /// Whether another type can be set.
  var hasRoom: Bool { setRecords.count < Self.typesMax }

  /// Return the record of a channel type; version 0 and the defaults if it was never set.
  func record(_ name: String) -> ChannelTypeRecord {
    positions[name].map { records[$0] } ?? ChannelTypeRecord(name: name)
  }

  /// Return a type's options.
  @inline(__always)
  func options(_ position: Int) -> ChannelTypeOptions { records[position].options }

  /// Return a type's options before its last change since the shard was loaded.
  func optionsBefore(_ position: Int) -> ChannelTypeOptions {
    optionsBefore[position] ?? records[position].options
  }

  /// The effects that reproduce the types page.
  var effects: [Effect] {
    setRecords.flatMap { record -> [Effect] in
      let assigned = Effect.shard(.channelTypeAssigned(record))
      return record.isSettled
        ? [assigned, .shard(.typeSettled(name: record.name, version: record.version))] : [assigned]
    }
  }

  // MARK: Assignment

  /// Return the index of a type's record. Adds a record with the defaults for an unknown type.
  mutating func position(_ name: String) -> Int {
    if let position = positions[name] { return position }
    records.append(ChannelTypeRecord(name: name))
    positions[name] = records.count - 1
    return records.count - 1
  }

  mutating func assign(_ record: ChannelTypeRecord) {
    let position = position(record.name)
    optionsBefore[position] = records[position].options
    records[position] = record
  }

  /// Record that all shards have a version of a type.
  mutating func settle(_ name: String, version: UInt64) {
    let position = position(name)
    if records[position].version == version { records[position].isSettled = true }
  }
}
