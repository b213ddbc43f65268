/// The limits of requests that the gateway and the store both check (Proto/frames.md, "Requests").
package enum WireLimits {
  /// Maximum number of messages, or of users, that one query or acknowledgement names.
  package static let entriesMax = 100
  /// Maximum number of entries on one page of a list.
  package static let pageMax = 100
  /// Maximum number of users that one message may mention by name.
  package static let mentionsMax = 100
  /// Maximum number of records that one request imports.
  package static let importedMax = 1_000
}
