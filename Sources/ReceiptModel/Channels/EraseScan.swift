/// The progress of erasing a user in a channel and its threads (R16).
package struct EraseScan: Sendable {
  /// The progress in the channel, or in one of its threads.
  struct Part: Sendable {
    /// Acknowledgements and messages up to here are done, and rows before this one.
    var acknowledgements = SequenceNumber.zero
    var messages = SequenceNumber.zero
    var rows: UInt32 = 0
  }

  /// Number of messages, acknowledgement requests and threads examined that cost as much as one effect.
  static let scansPerEffect = 16

  var own = Part()
  /// Threads before this index are done; `inThread` is the progress in that one.
  var threads = 0
  var inThread = Part()
  /// The held-back effect that removes the last reference to the user.
  var held: ChannelEffect?

  package init() {}

  /// Whether the channel knew the user.
  package var isKnown: Bool { held != nil }
}
