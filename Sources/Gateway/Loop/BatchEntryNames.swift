/// The names of a batch's entries, kept from its body for the response: a cid and an id for each entry.
struct BatchEntryNames {
  /// A part of `bytes`; a negative start: the entry has no such name.
  private struct Name {
    var start: Int32
    var count: Int32
  }

  private var bytes: [UInt8] = []
  private var cids: [Name] = []
  private var ids: [Name] = []

  /// Number of entries.
  var count: Int { cids.count }

  /// Add the names of the next entry; nil: it has none, or no string.
  mutating func append(cid: RawSpan? = nil, id: RawSpan? = nil) {
    cids.append(store(cid))
    ids.append(store(id))
  }

  private mutating func store(_ text: RawSpan?) -> Name {
    guard let text else { return Name(start: -1, count: 0) }
    let start = bytes.count
    text.withUnsafeBytes { bytes.append(contentsOf: $0) }
    return Name(start: Int32(start), count: Int32(text.byteCount))
  }

  @_lifetime(borrow self)
  func cid(_ entry: Int) -> RawSpan? { text(cids[entry]) }

  @_lifetime(borrow self)
  func id(_ entry: Int) -> RawSpan? { text(ids[entry]) }

  @_lifetime(borrow self)
  private func text(_ name: Name) -> RawSpan? {
    guard name.start >= 0 else { return nil }
    let start = Int(name.start)
    return bytes.span.bytes.extracting(start..<(start + Int(name.count)))
  }
}

extension RawSpan {
  /// A copy of the bytes.
  var bytes: [UInt8] { withUnsafeBytes { Array($0) } }
}
