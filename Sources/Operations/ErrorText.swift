internal import Foundation
internal import NIOCore
internal import NIOPosix

/// What went wrong with a socket, in words for the person at the terminal: without the names of calls and the numbers
/// that the errors' own descriptions have.
package enum ErrorText {
  /// As in `Address already in use`, or `no address is known for "gateway-9"`.
  package static func of(_ error: any Error) -> String {
    switch error {
    case let error as NIOConnectionError:
      // Of several addresses the first that was tried; of none, the name was not found.
      if let first = error.connectionErrors.first { return of(first.error) }
      return noAddress(error.host)
    case let error as IOError: return String(cString: strerror(error.errnoCode))
    case let error as SocketAddressError.UnknownHost: return noAddress(error.host)
    case ChannelError.connectTimeout(let time):
      return "no answer within \(time.nanoseconds / 1_000_000_000) s"
    default: return "\(error)"
    }
  }

  /// Why a file cannot be read, in the system's words.
  static func reading(_ path: String) -> String {
    guard let file = fopen(path, "r") else { return String(cString: strerror(errno)) }
    defer { fclose(file) }
    // A directory can be opened, and not read.
    return fgetc(file) == EOF && ferror(file) != 0 ? String(cString: strerror(errno)) : "no bytes"
  }

  private static func noAddress(_ host: String) -> String { "no address is known for \"\(host)\"" }
}
