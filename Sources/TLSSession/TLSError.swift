internal import COpenSSL

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#else
  internal import Darwin
#endif

/// TLS errors. The texts are OpenSSL's own reasons, for logs.
package enum TLSError: Error, Equatable, CustomStringConvertible {
  /// A certificate or key file cannot be used.
  case file(path: String, reason: String)
  /// OpenSSL rejected a setting, or there was no memory.
  case configuration(reason: String)
  /// The peer's certificate is not accepted, or not for the expected name.
  case certificate(reason: String)
  /// No common application protocol (RFC 7301 section 3.2), including a client that offered none.
  case noApplicationProtocol
  /// The peer does not send TLS, but plain frames or plain HTTP.
  case notTLS
  /// A client must present a certificate and presented none.
  case noPeerCertificate
  /// The peer aborted with an alert (RFC 8446 section 6.2). In most cases it does not accept this side's certificate.
  case alert(reason: String)
  /// The handshake failed for another reason.
  case handshake(reason: String)
  /// The handshake timed out.
  case handshakeTimeout
  /// A record after the handshake was invalid.
  case record(reason: String)
  /// The peer changes its keys, or asks to renegotiate, too often.
  case tooManyKeyUpdates
  /// The peer closed without close_notify: the data read so far may be incomplete (RFC 8446 section 6.1).
  case truncated
  /// The connection is closed.
  case closed

  /// One-line description for the log.
  package var description: String {
    switch self {
    case .file(let path, let reason): "\(path): \(reason)"
    case .configuration(let reason): "TLS configuration: \(reason)"
    case .certificate(let reason): "TLS certificate: \(reason)"
    case .noApplicationProtocol: "TLS: no application protocol in common"
    case .notTLS: "TLS: the peer does not speak TLS"
    case .noPeerCertificate: "TLS: the client presented no certificate"
    case .alert(let reason): "TLS: refused by the peer: \(reason)"
    case .handshake(let reason): "TLS handshake: \(reason)"
    case .handshakeTimeout: "TLS handshake: timed out"
    case .record(let reason): "TLS: \(reason)"
    case .tooManyKeyUpdates: "TLS: the peer sends too many key updates"
    case .truncated: "TLS: closed without close_notify"
    case .closed: "TLS: connection closed"
    }
  }
}

/// The calling thread's queue of OpenSSL errors. It must be empty before each call whose error is examined.
enum OpenSSLErrors {
  static func clear() { ERR_clear_error() }

  /// Return the first error's reason number and text, and clear the queue.
  static func drain() -> (number: Int32, reason: String) {
    let code = ERR_get_error()
    ERR_clear_error()
    guard code != 0 else { return (0, "unknown reason") }
    let number = ERR_GET_REASON(code)
    if let text = ERR_reason_error_string(code) { return (number, String(cString: text)) }
    // OpenSSL 3 has no text for operating system errors.
    return (number, String(cString: strerror(number)))
  }
}
