/// Reason why a backup, a check or a restore failed, in one line with a remedy.
package struct BackupFailure: Error, Hashable, Sendable, CustomStringConvertible {
  package let description: String

  /// Whether the disk is full.
  package let isOutOfSpace: Bool

  package init(_ description: String, isOutOfSpace: Bool = false) {
    self.description = description
    self.isOutOfSpace = isOutOfSpace
  }
}
