internal import CommandOutput
internal import Foundation
internal import Glibc

/// Machine and build of a measurement.
enum Machine {
  /// Processors and system in one line.
  static var summary: String {
    let processors = ProcessInfo.processInfo.processorCount
    let model = value("model name", in: "/proc/cpuinfo", separator: ":") ?? "unknown processor"
    let system = value("PRETTY_NAME", in: "/etc/os-release", separator: "=") ?? "Linux"
    var name = utsname()
    uname(&name)
    let release = withUnsafeBytes(of: &name.release) { bytes in
      String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
    return "\(processors) × \(model), \(system), Linux \(release)"
  }

  /// Return whether a directory is on a file system in memory, where a sync costs nothing.
  static func isInMemory(_ directory: String) -> Bool {
    // With a file handle: by path, Foundation reads at most 4 KiB of a file whose size is reported as 0.
    guard let file = FileHandle(forReadingAtPath: "/proc/self/mounts"), let data = try? file.readToEnd()
    else { return false }
    let type = fileSystem(of: directory, mounts: String(decoding: data, as: UTF8.self))
    return ["tmpfs", "ramfs"].contains(type)
  }

  /// Return the type of the file system of a path: that of the longest mount point above it, the last of equal ones.
  static func fileSystem(of path: String, mounts: String) -> String? {
    var found: (point: Substring, type: Substring)?
    for line in mounts.split(separator: "\n") {
      let fields = line.split(separator: " ")
      guard fields.count > 2 else { continue }
      let point = fields[1]
      let isAbove = point == "/" || path == point || path.hasPrefix(point + "/")
      if isAbove && point.count >= (found?.point.count ?? 0) { found = (point, fields[2]) }
    }
    return found.map { String($0.type) }
  }

  /// Warn that a program without optimization measures nothing useful.
  static func warnAboutDebugBuild(_ command: String) {
    #if DEBUG
      Terminal.printError("\(command): this is a debug build; measure with a release build")
    #endif
  }

  private static func value(_ key: String, in file: String, separator: Character) -> String? {
    guard let data = FileManager.default.contents(atPath: file) else { return nil }
    for line in String(decoding: data, as: UTF8.self).split(separator: "\n") where line.hasPrefix(key) {
      guard let at = line.firstIndex(of: separator) else { continue }
      return line[line.index(after: at)...].trimmingCharacters(in: CharacterSet(charactersIn: " \"\t"))
    }
    return nil
  }
}
