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

  private static func noAddress(_ host: String) -> String { "no address is known for \"\(host)\"" }
}
