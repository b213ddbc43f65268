/// A resolved, absolute assignment to one page (docs/architecture.md). The shard decides a command into effects,
/// then assigns them to its memory, its log and its pages. Replay therefore decides nothing. Large payloads are
/// indirect: the effect of a mark is a few words, copied without counting a reference. Encodings:
/// Proto/frames.md, "The log and the pages".
///
/// A new effect is a case of one of the two groups, with its traits; its encoding (`EffectFields`); and its assignment
/// (``ChannelState`` or ``ShardState``).
package enum Effect: Hashable, Sendable {
  case channel(ChannelNumber, ChannelEffect)
  case shard(ShardEffect)

  /// The channel that this effect belongs to; nil for the shard's own pages.
  package var channel: ChannelNumber? {
    switch self {
    case .channel(let number, _): number
    case .shard: nil
    }
  }

  /// The page this effect is addressed to.
  package var page: PageID {
    switch self {
    case .channel(_, let effect): effect.page
    case .shard(let effect): effect.page
    }
  }

  /// Whether this effect moves a member's watermark.
  package var movesWatermark: Bool {
    switch self {
    case .channel(_, let effect): effect.traits.contains(.movesWatermark)
    case .shard: false
    }
  }

  /// Whether this effect has an id that builds from before 2027 reject.
  package var hasWideIDs: Bool { ids?.hasWide ?? false }

  /// The id of the user that this effect stores; empty: none. A user's index is stored like a channel, under the user's
  /// id, so a channel gives its cid.
  package var user: String {
    guard let ids else { return "" }
    return ids.name.isEmpty ? ids.user : ids.name
  }

  private var ids: StoredIDs? {
    switch self {
    case .channel(_, let effect): effect.ids
    case .shard(let effect): effect.ids
    }
  }
}

/// The ids that an effect stores; empty: none of that kind.
struct StoredIDs {
  /// The cid of the effect's own channel, or the name of a user's index.
  var name = ""
  var user = ""
  /// The cid of another channel.
  var channel = ""
  var message = ""

  /// Whether builds from before 2027 reject one of the ids.
  var hasWide: Bool {
    !(all(user, Identifier.isLegacyUser) && all(channel, Identifier.isLegacyCID)
      && all(message, Identifier.isLegacyMessage)
      && all(name, IndexName.isIndex(Array(name.utf8)) ? Identifier.isLegacyUser : Identifier.isLegacyCID))
  }

  /// Return whether an id is empty or satisfies the predicate.
  private func all(_ id: String, _ isInRange: (RawSpan) -> Bool) -> Bool {
    var id = id
    return id.isEmpty || id.withUTF8 { isInRange($0.span.bytes) }
  }
}
