#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Reader of settings and secrets. Only regular files are read: opening a FIFO, or reading a terminal, would block a
/// reload, and with it the end of the process.
package enum RegularFile {
  /// Read a whole file.
  ///
  /// - Parameter byteCountMax: limit on the size in bytes. A larger file is read up to one byte more.
  /// - Throws: the reason, in the system's words where it is the system's.
  package static func bytes(_ path: String, byteCountMax: Int) throws(FileFault) -> [UInt8] {
    let descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else { throw FileFault(systemError: errno) }
    defer { close(descriptor) }
    if let fault = fault(ofOpen: descriptor) { throw fault }
    var bytes: [UInt8] = []
    while bytes.count <= byteCountMax {
      let room = min(64 * 1024, byteCountMax + 1 - bytes.count)
      var failure: Int32 = 0
      let part = [UInt8](unsafeUninitializedCapacity: room) { buffer, count in
        let found = read(descriptor, buffer.baseAddress, room)
        if found < 0 { failure = errno }
        count = max(0, found)
      }
      guard failure == 0 else { throw FileFault(systemError: failure) }
      if part.isEmpty { break }
      bytes += part
    }
    return bytes
  }

  private static func fault(ofOpen descriptor: Int32) -> FileFault? {
    var information = stat()
    guard fstat(descriptor, &information) == 0 else { return FileFault(systemError: errno) }
    switch information.st_mode & S_IFMT {
    case S_IFREG: return nil
    case S_IFDIR: return FileFault(systemError: EISDIR)
    default: return FileFault(reason: "it is not a regular file")
    }
  }
}

/// Why a file cannot be read.
package struct FileFault: Error, CustomStringConvertible {
  package let reason: String

  package init(reason: String) { self.reason = reason }

  package init(systemError: Int32) { reason = String(cString: strerror(systemError)) }

  package var description: String { reason }
}
