/// A user's versioned settings, which every shard has (R7). Exists only for users whose settings were ever set.
package struct UserSettings: Hashable, Sendable {
  package var user: String
  /// 0: never set, every setting has its default.
  package var version: UInt64
  package var hidesRead: Bool
  package var hidesDelivered: Bool
  /// When the user last changed from hidden to shown; positions moved while hidden count from then. None: never hidden.
  package var readShownSince: Timestamp
  package var deliveredShownSince: Timestamp
  /// Tokens issued before this time are refused; none: no token is refused.
  package var tokensRevokedBefore: Timestamp
  /// In the user's home shard: every shard has this version.
  package var isSettled: Bool
  /// The user is being erased (R16): nothing new may be created in their name.
  package var isErasing: Bool
  /// The user was erased at this version (R16) and nothing else is kept. Only in replies, never in the log.
  package var isErased: Bool
  /// When this shard applied the current privacy settings; none: they never changed. Each shard has its own.
  package var appliedAt: Timestamp

  package init(
    user: String,
    version: UInt64 = 0,
    hidesRead: Bool = false,
    hidesDelivered: Bool = false,
    readShownSince: Timestamp = .none,
    deliveredShownSince: Timestamp = .none,
    tokensRevokedBefore: Timestamp = .none,
    isSettled: Bool = false,
    isErasing: Bool = false,
    isErased: Bool = false,
    appliedAt: Timestamp = .none
  ) {
    self.user = user
    self.version = version
    self.hidesRead = hidesRead
    self.hidesDelivered = hidesDelivered
    self.readShownSince = readShownSince
    self.deliveredShownSince = deliveredShownSince
    self.tokensRevokedBefore = tokensRevokedBefore
    self.isSettled = isSettled
    self.isErasing = isErasing
    self.isErased = isErased
    self.appliedAt = appliedAt
  }
}

/// A partial update of a user's settings: nil leaves a setting unchanged.
package struct UserSettingsPatch: Hashable, Sendable {
  package var showsRead: Bool?
  package var showsDelivered: Bool?
  package var tokensRevokedBefore: Timestamp?
  package init(showsRead: Bool? = nil, showsDelivered: Bool? = nil, tokensRevokedBefore: Timestamp? = nil) {
    self.showsRead = showsRead
    self.showsDelivered = showsDelivered
    self.tokensRevokedBefore = tokensRevokedBefore
  }
}
