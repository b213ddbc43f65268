internal import Foundation

/// What a running process and its data take, as the system says.
package enum ProcessFigures {
  /// Resident memory of a process in bytes; nil where it is gone.
  package static func residentBytes(of processID: Int32) -> Int? {
    guard let data = FileManager.default.contents(atPath: "/proc/\(processID)/status") else { return nil }
    return bytes("VmRSS:", status: String(decoding: data, as: UTF8.self))
  }

  /// The most resident memory that a process has had at once, in bytes, since it began or ``forgetPeak(of:)``; nil
  /// where it is gone.
  static func peakBytes(of processID: Int32) -> Int? {
    guard let data = FileManager.default.contents(atPath: "/proc/\(processID)/status") else { return nil }
    return bytes("VmHWM:", status: String(decoding: data, as: UTF8.self))
  }

  /// From now on the peak is a new one (proc_pid_clear_refs(5)).
  ///
  /// - Returns: false where the system will not do that for this process.
  static func forgetPeak(of processID: Int32) -> Bool {
    guard let file = FileHandle(forWritingAtPath: "/proc/\(processID)/clear_refs") else { return false }
    defer { try? file.close() }
    return (try? file.write(contentsOf: Data("5".utf8))) != nil
  }

  /// A size in the text of `/proc/PID/status`.
  static func bytes(_ field: String, status: String) -> Int? {
    for line in status.split(separator: "\n") where line.hasPrefix(field) {
      return line.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first
        .flatMap { Int($0) }.map { $0 << 10 }
    }
    return nil
  }

  /// Bytes of the files right in a directory, of all and of those with this ending.
  package static func fileBytes(in directory: String, ending: String = "") -> Int {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    return names.filter { $0.hasSuffix(ending) }.reduce(0) { sum, name in
      let attributes = try? FileManager.default.attributesOfItem(atPath: directory + "/" + name)
      return sum + ((attributes?[.size] as? Int) ?? 0)
    }
  }

  /// A metric without labels in the Prometheus text of an operations listener; nil where it is not there.
  static func metric(_ name: String, in text: String) -> Double? {
    for line in text.split(separator: "\n") where line.hasPrefix(name + " ") {
      return Double(line.dropFirst(name.count + 1))
    }
    return nil
  }
}
