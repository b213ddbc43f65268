internal import ReceiptModel

/// The query parameters of ``EventStreamsPart/openEvents(_:_:_:)``.
struct EventParameters {
  /// Nil: all channels of the user.
  var channels: [String]?
  var user: String?
  var cursor: EventCursor?
  var wantsTotals = false
  private var named: Set<ExactText> = []

  /// - Throws: `invalid_cid`, `invalid_field`, `invalid_query`, `invalid_user_id`, `user_id_mismatch`.
  mutating func read(
    _ query: RawSpan,
    _ context: RequestContext,
    scratch: PathScratch,
    limits: GatewayLimits
  ) throws(Problem) {
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("channels") {
        // An empty list must not widen the request: without `channels` it covers all channels.
        guard !parameter.value.isEmpty else {
          throw Problem(.invalidQuery, "channels has to name channels, as in channels=team:a,team:b")
        }
        if channels == nil { channels = [] }
        var list = parameter.list(scratch)
        while let cid = list.next() { try add(cid, countMax: limits.channelsPerRequest) }
        continue
      }
      // An empty value of another parameter counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("user_id") {
        try context.check(parameter.value)
        user = parameter.value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      } else if parameter.name.equals("since") {
        cursor = try Self.cursor(parameter.value, "since")
      } else if parameter.name.equals("totals") {
        wantsTotals = parameter.value.equals("true")
        guard wantsTotals || parameter.value.equals("false") else {
          throw Problem(.invalidQuery, "totals has to be true or false")
        }
      }
    }
  }

  static func cursor(_ text: RawSpan, _ name: String) throws(Problem) -> EventCursor {
    guard let cursor = EventCursor(text) else {
      throw Problem(
        .invalidField,
        "\(name) is not the id of an event: leave it out, or give the last id that came"
      )
    }
    return cursor
  }

  /// Add a channel, unless it was named before.
  private mutating func add(_ cid: RawSpan, countMax: Int) throws(Problem) {
    guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
    let name = cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    guard named.insert(ExactText(name)).inserted else { return }
    guard named.count <= countMax else {
      throw Problem(.invalidField, "channels has to name at most \(countMax)")
    }
    channels?.append(name)
  }
}
