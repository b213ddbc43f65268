internal import Foundation
internal import StoreEngine

/// The file `unsynced` in a data directory: it says that commits are not synced one by one. It contains the machine's
/// boot id, because only a failure of the machine loses written data. While the boot id is the same, the log has no
/// holes, and any damage in it is real.
enum UnsyncedMark {
  private static func path(_ directory: String) -> String { directory + "/unsynced" }

  private static var bootID: String {
    (try? String(contentsOfFile: "/proc/sys/kernel/random/boot_id", encoding: .utf8)) ?? ""
  }

  /// Return whether the log may have holes: the mark exists, and the machine has rebooted since.
  static func mayHaveHoles(in directory: String) -> Bool {
    guard FileManager.default.fileExists(atPath: path(directory)) else { return false }
    let marked = (try? String(contentsOfFile: path(directory), encoding: .utf8)) ?? ""
    return marked.isEmpty || marked != bootID
  }

  /// Write the mark durably; required before the first commit that is not synced.
  static func write(to directory: String) throws(StorageError) {
    guard store(bootID, path(directory)), syncFile(directory) else {
      throw .unusable("--data \(directory): cannot be written to (\(String(cString: strerror(errno))))")
    }
  }

  /// Remove the mark once everything is synced. If the mark stays, the next start only checks more than it needs to.
  static func remove(from directory: String) { _ = unlink(path(directory)) }

  private static func store(_ text: String, _ path: String) -> Bool {
    let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    guard file >= 0 else { return false }
    defer { close(file) }
    let count = text.utf8.count
    return Foundation.write(file, text, count) == count && fsync(file) == 0
  }

  private static func syncFile(_ path: String) -> Bool {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return false }
    defer { close(file) }
    return fsync(file) == 0
  }
}

/// Whether a sync is due: writes that have ended since the last sync, and writes that are under way. A write that is
/// under way when a sync begins may miss it, so it is due again.
struct UnsyncedWrites {
  private var underWay = 0
  /// What an earlier run has written may be unsynced.
  private var hasEnded = true

  mutating func writeBegan() { underWay += 1 }

  mutating func writeEnded() {
    underWay -= 1
    hasEnded = true
  }

  /// Return whether a sync is due now. Call it before the sync, which covers all writes that have ended.
  mutating func takeDue() -> Bool {
    let isDue = hasEnded || underWay > 0
    hasEnded = false
    return isDue
  }
}
