internal import Foundation
internal import NIOCore
internal import NIOPosix

/// Text of socket and file errors for a person at the terminal, without the call names and numbers in the errors' own
/// descriptions.
package enum ErrorText {
  /// Describe an error, as in `Address already in use` or `cannot resolve "gateway-9"`.
  package static func of(_ error: any Error) -> String {
    switch error {
    case let error as NIOConnectionError:
      // With several addresses, report the first one tried; with none, the name was not found.
      if let first = error.connectionErrors.first { return of(first.error) }
      return noAddress(error.host)
    case let error as IOError: return String(cString: strerror(error.errnoCode))
    case let error as SocketAddressError.UnknownHost: return noAddress(error.host)
    case ChannelError.connectTimeout(let time):
      return "timed out after \(time.nanoseconds / 1_000_000_000) s"
    default: return "\(error)"
    }
  }

  private static func noAddress(_ host: String) -> String { "cannot resolve \"\(host)\"" }
}
