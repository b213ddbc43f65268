/// Why a backup, a check or a restore did not succeed, in one line with what helps.
package struct BackupFailure: Error, Hashable, Sendable, CustomStringConvertible {
  package let description: String

  /// The disk is full.
  package let isOutOfSpace: Bool

  package init(_ description: String, isOutOfSpace: Bool = false) {
    self.description = description
    self.isOutOfSpace = isOutOfSpace
  }
}
