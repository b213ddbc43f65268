internal import COpenSSL

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#else
  internal import Darwin
#endif

/// What can go wrong with TLS. The texts are OpenSSL's own reasons, for logs.
package enum TLSError: Error, Equatable, CustomStringConvertible {
  /// A certificate or key file cannot be used.
  case file(path: String, reason: String)
  /// OpenSSL refused a setting, or there was no memory.
  case configuration(reason: String)
  /// The peer's certificate is not accepted, or not for that name.
  case certificate(reason: String)
  /// No application protocol in common (RFC 7301 section 3.2); a client that offered none counts too.
  case noApplicationProtocol
  /// What the peer sends is no TLS: plain frames, plain HTTP.
  case notTLS
  /// A client has to show a certificate and shows none.
  case noPeerCertificate
  /// The peer gives up and says why (RFC 8446 section 6.2): in most cases it does not accept this side's certificate.
  case alert(reason: String)
  /// The handshake failed otherwise.
  case handshake(reason: String)
  /// The handshake took longer than it may.
  case handshakeTimeout
  /// A record was bad after the handshake.
  case record(reason: String)
  /// The peer closed without close_notify: what was read may be incomplete (RFC 8446 section 6.1).
  case truncated
  /// The connection is closed.
  case closed

  /// One line for the log.
  package var description: String {
    switch self {
    case .file(let path, let reason): "\(path): \(reason)"
    case .configuration(let reason): "TLS configuration: \(reason)"
    case .certificate(let reason): "TLS certificate: \(reason)"
    case .noApplicationProtocol: "TLS: no application protocol in common"
    case .notTLS: "TLS: the peer does not speak it"
    case .noPeerCertificate: "TLS certificate: the client shows none"
    case .alert(let reason): "TLS: refused by the peer: \(reason)"
    case .handshake(let reason): "TLS handshake: \(reason)"
    case .handshakeTimeout: "TLS handshake: took too long"
    case .record(let reason): "TLS: \(reason)"
    case .truncated: "TLS: closed without close_notify"
    case .closed: "TLS: connection closed"
    }
  }
}

/// The calling thread's queue of OpenSSL errors. It has to be empty before each call whose failure is asked
/// about.
enum OpenSSLErrors {
  static func clear() { ERR_clear_error() }

  /// The first error's reason number, and its text; the queue is empty afterwards.
  static func take() -> (number: Int32, reason: String) {
    let code = ERR_get_error()
    ERR_clear_error()
    guard code != 0 else { return (0, "unknown reason") }
    let number = ERR_GET_REASON(code)
    if let text = ERR_reason_error_string(code) { return (number, String(cString: text)) }
    // Errors of the operating system have no text in OpenSSL 3.
    return (number, String(cString: strerror(number)))
  }
}
