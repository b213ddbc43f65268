internal import Crypto
internal import Foundation
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Handshake of a connection as by a gateway (Proto/frames.md, "Handshake"). It is independent of StoreClient, so that
/// the two check each other.
extension StoreFrames {
  package mutating func open(_ exchange: ProbeExchange<StoreFrames>, _ line: String) async throws {
    guard line.isEmpty else {
      throw ProbeError("a store is opened without fields; send hello and proof by hand")
    }
    let session = session ?? (0..<16).map { _ in UInt8.random(in: .min ... .max) }
    let nonce = (0..<32).map { _ in UInt8.random(in: .min ... .max) }
    let age = isResuming ? "0" : "none"
    try await exchange.send(
      "hello session=\(Hex.text(session)) session_age=\(age) nonce=\(Hex.text(nonce))",
      in: &self
    )

    let challenge = try await answer("challenge", exchange)
    guard case .bytes(let theirNonce)? = challenge["nonce"],
      case .bytes(let theirProof)? = challenge["proof"],
      case .number(let shards)? = challenge["shard_count"]
    else { throw ProbeError("the challenge lacks a field") }
    var proof: [UInt8] = []
    if let secret {
      let key = SymmetricKey(data: secret)
      let material = nonce + theirNonce + session
      guard
        HMAC<SHA256>.isValidAuthenticationCode(
          theirProof,
          authenticating: Array("tidemark store 1".utf8) + material,
          using: key
        )
      else { throw ProbeError("the store does not prove that it holds the secret") }
      proof = Array(
        HMAC<SHA256>.authenticationCode(for: Array("tidemark gateway 1".utf8) + material, using: key)
      )
    }
    try await exchange.send("proof proof=\(Hex.text(proof))", in: &self)
    _ = try await answer("ready", exchange)

    // A resumed session keeps its counter; that of a new one begins at 1.
    if !isResuming { counterNext = 1 }
    self.session = session
    isResuming = true
    shardCount = Int(shards)
  }

  private mutating func answer(_ kind: String, _ exchange: ProbeExchange<StoreFrames>) async throws
    -> [String: FieldValue]
  {
    switch try await exchange.receive(in: &self, where: { try $0.matches($1, by: kind) }) {
    case .unit(let unit):
      guard try differences(kind, from: unit).isEmpty else {
        throw ProbeError("in the handshake: expected \(kind), received \(text(unit))")
      }
      return values(of: unit)
    case .closed: throw ProbeError("the connection was closed in the handshake, before \(kind)")
    case .timedOut: throw ProbeError("no \(kind) came in time")
    case .broken(let reason): throw ProbeError("no frame instead of \(kind): \(reason)")
    }
  }
}
