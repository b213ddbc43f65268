internal import Foundation

/// Memory of a process, and sizes of files.
package enum ProcessFigures {
  /// Return the resident memory of a process in bytes; nil after its exit.
  package static func residentBytes(of processID: Int32) -> Int? {
    guard let data = FileManager.default.contents(atPath: "/proc/\(processID)/status") else { return nil }
    return bytes("VmRSS:", status: String(decoding: data, as: UTF8.self))
  }

  /// Return the peak resident memory of a process in bytes since its start or ``resetPeak(of:)``; nil after its exit.
  static func peakBytes(of processID: Int32) -> Int? {
    guard let data = FileManager.default.contents(atPath: "/proc/\(processID)/status") else { return nil }
    return bytes("VmHWM:", status: String(decoding: data, as: UTF8.self))
  }

  /// Reset the peak (proc_pid_clear_refs(5)).
  ///
  /// - Returns: false if the system refuses it.
  static func resetPeak(of processID: Int32) -> Bool {
    guard let file = FileHandle(forWritingAtPath: "/proc/\(processID)/clear_refs") else { return false }
    defer { try? file.close() }
    return (try? file.write(contentsOf: Data("5".utf8))) != nil
  }

  /// Return the size of a field in the text of `/proc/PID/status`, in bytes.
  static func bytes(_ field: String, status: String) -> Int? {
    for line in status.split(separator: "\n") where line.hasPrefix(field) {
      return line.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first
        .flatMap { Int($0) }.map { $0 << 10 }
    }
    return nil
  }

  /// Return the size of the files in a directory whose names have an ending, without subdirectories.
  package static func fileBytes(in directory: String, ending: String = "") -> Int {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    return names.filter { $0.hasSuffix(ending) }.reduce(0) { sum, name in
      let attributes = try? FileManager.default.attributesOfItem(atPath: directory + "/" + name)
      return sum + ((attributes?[.size] as? Int) ?? 0)
    }
  }
}
